"""Nodes and groups."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection import Transport
from hai.client.resume import resumed
from hai.v1.node_pb2 import Group, Node
from hai.v1.node_service_pb2 import (
    CordonNodeRequest,
    DrainNodeRequest,
    GetNodeRequest,
    ListGroupsRequest,
    ListNodesRequest,
    UncordonNodeRequest,
    UpdateGroupRequest,
    WatchNodesRequest,
    WatchNodesResponse,
)
from hai.v1.node_service_pb2_grpc import NodeServiceStub

if TYPE_CHECKING:
    from hai.v1.node_service_pb2_grpc import NodeServiceAsyncStub


class Nodes:
    """Look at nodes; take them out of service and back (operators)."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> NodeServiceAsyncStub:
        return self._transport.stub(NodeServiceStub)

    async def list(self, group: str = "") -> Sequence[Node]:
        """Nodes of a group, or all, by name."""
        request = ListNodesRequest(group=group)
        return (await self._transport.unary(self._stub.ListNodes, request, retry=True)).nodes

    async def get(self, name: str) -> Node:
        """One node."""
        request = GetNodeRequest(name=name)
        return await self._transport.unary(self._stub.GetNode, request, retry=True)

    def watch(
        self, group: str = "", after_version: int = 0, *, patience: float | None = None
    ) -> AsyncGenerator[WatchNodesResponse, None]:
        """Every node now, then changes; goes on from the last version when the server comes back."""

        def reopen(version: int) -> AsyncGenerator[WatchNodesResponse, None]:
            request = WatchNodesRequest(group=group, after_version=version)
            return self._transport.stream(self._stub.WatchNodes, request)

        return resumed(reopen, after_version, lambda r: r.version, patience=patience, endless=True)

    async def cordon(self, name: str, reason: str = "") -> Node:
        """Let a node take no new work."""
        request = CordonNodeRequest(name=name, reason=reason)
        return await self._transport.unary(self._stub.CordonNode, request, retry=True)

    async def uncordon(self, name: str) -> Node:
        """Let a node take work again."""
        request = UncordonNodeRequest(name=name)
        return await self._transport.unary(self._stub.UncordonNode, request, retry=True)

    async def drain(self, name: str, reason: str = "") -> Node:
        """Cordon a node and suspend what runs there."""
        request = DrainNodeRequest(name=name, reason=reason)
        return await self._transport.unary(self._stub.DrainNode, request, retry=True)

    async def groups(self) -> Sequence[Group]:
        """Groups with their numbers, by name."""
        request = ListGroupsRequest()
        return (await self._transport.unary(self._stub.ListGroups, request, retry=True)).groups

    async def update_group(self, name: str, packed: bool) -> Group:
        """Choose whether small tasks share the nodes of a group."""
        request = UpdateGroupRequest(name=name, packed=packed)
        return await self._transport.unary(self._stub.UpdateGroup, request, retry=True)
