"""Nodes and node groups."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING

from google.protobuf.field_mask_pb2 import FieldMask

from hai.client.connection.streams import resume_stream
from hai.client.connection.transport import Transport
from hai.client.resources.requests import pages
from hai.v1.node_pb2 import Group, Node
from hai.v1.node_service_pb2 import (
    CordonNodeRequest,
    DrainNodeRequest,
    GetNodeRequest,
    GetSnapshotRequest,
    LabelNodeRequest,
    ListGroupsRequest,
    ListNodesRequest,
    ListNodesResponse,
    UncordonNodeRequest,
    UpdateGroupRequest,
    WatchNodesRequest,
    WatchNodesResponse,
)
from hai.v1.node_service_pb2_grpc import NodeServiceStub
from hai.v1.policy_pb2 import SchedulingPolicy

if TYPE_CHECKING:
    from hai.v1.node_service_pb2_grpc import NodeServiceAsyncStub


class Nodes:
    """Calls about nodes and node groups. Operators may change them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> NodeServiceAsyncStub:
        return self._transport.stub(NodeServiceStub)

    async def list(self, group: str = "") -> Sequence[Node]:
        """Return the nodes of a group, or all, by name."""

        def fetch_page(token: str) -> Awaitable[ListNodesResponse]:
            request = ListNodesRequest(group=group, page_token=token)
            return self._transport.unary(self._stub.ListNodes, request, retry=True)

        return [node async for page in pages(fetch_page) for node in page.nodes]

    async def get(self, name: str) -> Node:
        """Return one node."""
        request = GetNodeRequest(name=name)
        return await self._transport.unary(self._stub.GetNode, request, retry=True)

    def watch(
        self, group: str = "", after_version: int = 0, *, patience: float | None = None
    ) -> AsyncGenerator[WatchNodesResponse, None]:
        """Yield every node, then changes. After an outage the watch continues from the last version."""

        def reopen(version: int) -> AsyncGenerator[WatchNodesResponse, None]:
            request = WatchNodesRequest(group=group, after_version=version)
            return self._transport.stream(self._stub.WatchNodes, request)

        return resume_stream(
            reopen, after_version, lambda r: r.version, patience=patience, endless=True
        )

    async def cordon(self, name: str, reason: str = "") -> Node:
        """Start no new ranks on a node."""
        request = CordonNodeRequest(name=name, reason=reason)
        return await self._transport.unary(self._stub.CordonNode, request, retry=True)

    async def uncordon(self, name: str) -> Node:
        """Allow new ranks on a cordoned node again."""
        request = UncordonNodeRequest(name=name)
        return await self._transport.unary(self._stub.UncordonNode, request, retry=True)

    async def drain(self, name: str, reason: str = "") -> Node:
        """Cordon a node and suspend the tasks that run on it."""
        request = DrainNodeRequest(name=name, reason=reason)
        return await self._transport.unary(self._stub.DrainNode, request, retry=True)

    async def label(
        self, name: str, labels: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> Node:
        """Set and remove labels of a node. If one change is invalid, none is made."""
        request = LabelNodeRequest(name=name, labels=labels, remove=remove)
        return await self._transport.unary(self._stub.LabelNode, request, retry=True)

    async def groups(self) -> Sequence[Group]:
        """Return the node groups with their counts of nodes, by name."""
        request = ListGroupsRequest()
        return (await self._transport.unary(self._stub.ListGroups, request, retry=True)).groups

    async def snapshot(self, *, anonymous: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield the state of the scheduler, as parts of a JSON text for `hai simulate`. For operators."""
        request = GetSnapshotRequest(anonymous=anonymous)
        async with aclosing(self._transport.stream(self._stub.GetSnapshot, request)) as parts:
            async for part in parts:
                yield part.data

    async def update_group(
        self,
        name: str,
        packed: bool | None = None,
        *,
        policy: SchedulingPolicy | None = None,
        unset: Iterable[str] = (),
        preview: bool = False,
    ) -> Group:
        """Change settings of a group: whether small tasks share nodes, and the fields that are set in `policy`.

        `unset` names policy fields that use the default of the server again. With `preview` nothing is changed, and
        `effect` of the answer says what the next scheduling pass would do differently.
        """
        policy = policy or SchedulingPolicy()
        changed_fields = [*(field.name for field, _ in policy.ListFields()), *unset]
        paths = [
            *(["packed"] if packed is not None else []),
            *(f"policy.{n}" for n in changed_fields),
        ]
        request = UpdateGroupRequest(
            name=name,
            packed=bool(packed),
            policy=policy,
            update_mask=FieldMask(paths=paths),
            validate_only=preview,
        )
        return await self._transport.unary(self._stub.UpdateGroup, request, retry=True)
