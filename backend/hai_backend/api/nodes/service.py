"""NodeService: nodes, the ranks on them, and node groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import cast

from hai.v1 import node_pb2
from hai.v1 import node_service_pb2 as pb
from hai.v1.node_service_pb2_grpc import NodeServiceServicer
from hai_backend.api.nodes import labels
from hai_backend.api.nodes.convert import entry_to_proto
from hai_backend.api.nodes.encode import NodeEncoder
from hai_backend.api.nodes.gpus import NodeGpus
from hai_backend.api.nodes.groups import NodeGroups
from hai_backend.api.nodes.tenants import NodeTenants
from hai_backend.api.protocols import Cluster, Scheduling
from hai_backend.api.request import limits, paging
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.request.paging import split_text
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.api.watch.wire import integer_field, join_fields
from hai_backend.domain.errors import Conflict, NotFound
from hai_backend.domain.node import Node
from hai_backend.domain.scheduling import snapshot_json
from hai_backend.domain.scheduling.snapshot import Snapshot

_VERSION = pb.WatchNodesResponse.VERSION_FIELD_NUMBER


class NodeService(NodeServiceServicer):
    """See proto/hai/v1/node_service.proto for what each call means."""

    def __init__(
        self,
        cluster: Cluster,
        tenants: NodeTenants,
        access: TaskAccess,
        groups: NodeGroups,
        gpus: NodeGpus,
        scheduling: Scheduling,
        watched_labels: frozenset[str],
    ) -> None:
        self._cluster = cluster
        self._tenants = tenants
        self._access = access
        self._groups = groups
        self._gpus = gpus
        self._scheduling = scheduling
        self._watched_labels = watched_labels
        self._encoder = NodeEncoder()

    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        await self._gpus.refresh()
        self._tenants.refresh()
        can_see = self._can_see_task()
        keyed = (
            (entry.node.name, self._gpus.add(entry_to_proto(version, entry, can_see), entry))
            for version, entry in self._tenants.nodes(request.group)
            if entry.node.name > request.page_token
        )
        nodes, token = paging.take_page(keyed, paging.page_size(request.page_size))
        return pb.ListNodesResponse(nodes=nodes, next_page_token=token)

    async def GetNode(self, request: pb.GetNodeRequest, context: Context) -> node_pb2.Node:
        await self._gpus.refresh()
        return self._get(request.name)

    async def WatchNodes(
        self, request: pb.WatchNodesRequest, context: Context
    ) -> AsyncIterator[pb.WatchNodesResponse]:
        async with aclosing(self.encoded_changes(request)) as responses:
            async for response in responses:
                yield cast(pb.WatchNodesResponse, response)  # wire.accept_encoded takes bytes

    async def encoded_changes(self, request: pb.WatchNodesRequest) -> AsyncGenerator[bytes, None]:
        """Yield the encoded responses of WatchNodes to the current caller."""
        sent_version, is_first = request.after_version, True
        with self._tenants.stream():
            while True:
                nodes = self._changed_nodes(request.group, sent_version)
                version = self._tenants.version
                if version < sent_version:  # a version of another server: send all nodes
                    sent_version = 0
                    continue
                parts = join_fields(nodes, limits.NODES_BYTES)
                part = next(parts)
                for next_part in parts:
                    yield part + integer_field(_VERSION, sent_version)
                    part = next_part
                if part or is_first:
                    yield part + integer_field(_VERSION, version)
                sent_version, is_first = version, False
                await self._tenants.wait_for_change(sent_version)

    async def CordonNode(self, request: pb.CordonNodeRequest, context: Context) -> node_pb2.Node:
        reason = _check_reason(request.reason)
        await self._cluster.set_cordoned(request.name, True, reason, current_caller().name)
        return self._get(request.name)

    async def UncordonNode(
        self, request: pb.UncordonNodeRequest, context: Context
    ) -> node_pb2.Node:
        before = self._cluster.nodes().get(request.name)
        after = await self._cluster.set_cordoned(request.name, False, "", current_caller().name)
        if after.held:
            was_cordoned = before is not None and before.cordoned
            raise Conflict(_describe_hold(after, was_cordoned=was_cordoned), reason="NODE_HELD")
        return self._get(request.name)

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Context) -> node_pb2.Node:
        await self._cluster.drain(
            request.name, _check_reason(request.reason), current_caller().name
        )
        return self._get(request.name)

    async def LabelNode(self, request: pb.LabelNodeRequest, context: Context) -> node_pb2.Node:
        labels.check(request, self._watched_labels)
        await self._cluster.set_labels(
            request.name, lambda before: labels.update_labels(before, request)
        )
        return self._get(request.name)

    async def ListGroups(
        self, request: pb.ListGroupsRequest, context: Context
    ) -> pb.ListGroupsResponse:
        return pb.ListGroupsResponse(groups=await self._groups.list_all())

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, context: Context) -> node_pb2.Group:
        if request.validate_only:
            return await self._groups.preview(request)
        return await self._groups.update(request)

    async def GetSnapshot(
        self, request: pb.GetSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.GetSnapshotResponse]:
        snapshot = await self._scheduling.snapshot()
        for part in await asyncio.to_thread(_write_snapshot, snapshot, request.anonymous):
            yield pb.GetSnapshotResponse(data=part)

    def _changed_nodes(self, group: str, after_version: int) -> Iterator[bytes]:
        """Return an iterator that encodes each node when it is needed."""
        self._tenants.refresh()
        can_see, changed = self._can_see_task(), self._tenants.nodes(group, after_version)
        return (self._encoder.encode(version, entry, can_see) for version, entry in changed)

    def _get(self, name: str) -> node_pb2.Node:
        self._tenants.refresh()
        versioned = self._tenants.node(name)
        if versioned is None:
            raise NotFound(f"there is no node {name!r}; `hai nodes` lists them")
        version, entry = versioned
        return self._gpus.add(entry_to_proto(version, entry, self._can_see_task()), entry)

    def _can_see_task(self) -> Callable[[int], bool]:
        identity = current_caller()
        return lambda task_id: self._access.can_see_unfinished(identity, task_id)


def _write_snapshot(snapshot: Snapshot, anonymous: bool) -> list[bytes]:
    """Return a snapshot as text, in parts that fit into messages. A large one takes seconds."""
    if anonymous:
        snapshot = snapshot_json.anonymize(snapshot)
    return list(split_text(snapshot_json.format_lines(snapshot)))


def _describe_hold(node: Node, *, was_cordoned: bool) -> str:
    """Explain why a node still takes no new work. The server may not change nodes in Kubernetes; a person must."""
    what = (
        f"node {node.name} is no longer cordoned in HAI, but still takes no new work"
        if was_cordoned
        else f"node {node.name} takes no new work, and HAI has not cordoned it"
    )
    remedy = f"Lift it with: {node.lift}" if node.lift else "`kubectl describe node` says more"
    return f"{what}: {node.held}. {remedy}"


def _check_reason(text: str) -> str:
    violations = FieldViolations()
    violations.check_line("reason", text, limits.REASON_CHARS)
    violations.raise_if_any()
    return text
