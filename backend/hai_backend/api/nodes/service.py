"""NodeService: nodes, who holds them, and the groups that they form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

from hai.v1 import node_pb2
from hai.v1 import node_service_pb2 as pb
from hai.v1.node_service_pb2_grpc import NodeServiceServicer
from hai_backend.api.nodes import labels
from hai_backend.api.nodes.groups import NodeGroups
from hai_backend.api.nodes.tenants import NodeTenants, entry_to_proto
from hai_backend.api.protocols import Cluster, Scheduling
from hai_backend.api.request import limits, paging
from hai_backend.api.request.chunking import by_size
from hai_backend.api.request.field_checks import Rules
from hai_backend.api.scheduling.snapshot_dump import dump
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.domain.errors import Conflict, NotFound
from hai_backend.domain.node import Node


class NodeService(NodeServiceServicer):
    """See proto/hai/v1/node_service.proto for what each call means."""

    def __init__(
        self,
        cluster: Cluster,
        board: NodeTenants,
        access: TaskAccess,
        groups: NodeGroups,
        scheduling: Scheduling,
        watched_labels: frozenset[str],
    ) -> None:
        self._cluster = cluster
        self._board = board
        self._access = access
        self._groups = groups
        self._scheduling = scheduling
        self._watched_labels = watched_labels

    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        self._board.refresh()
        sees = self._sees()
        keyed = (
            (entry.node.name, entry_to_proto(version, entry, sees))
            for version, entry in self._board.nodes(request.group)
            if entry.node.name > request.page_token
        )
        nodes, token = paging.page(keyed, paging.size(request.page_size))
        return pb.ListNodesResponse(nodes=nodes, next_page_token=token)

    async def GetNode(self, request: pb.GetNodeRequest, context: Context) -> node_pb2.Node:
        return self._one(request.name)

    async def WatchNodes(
        self, request: pb.WatchNodesRequest, context: Context
    ) -> AsyncIterator[pb.WatchNodesResponse]:
        sent, first = request.after_version, True
        while True:
            nodes = self._nodes(request.group, sent)
            upto = self._board.version
            if upto < sent:  # a version of another server: begin anew
                sent = 0
                continue
            parts = by_size(nodes, limits.NODES_BYTES)
            part = next(parts)
            for following in parts:
                yield pb.WatchNodesResponse(nodes=part, version=sent)
                part = following
            if part or first:
                yield pb.WatchNodesResponse(nodes=part, version=upto)
            sent, first = upto, False
            await self._board.beyond(sent)

    async def CordonNode(self, request: pb.CordonNodeRequest, context: Context) -> node_pb2.Node:
        reason = _reason(request.reason)
        await self._cluster.set_cordoned(request.name, True, reason, current_caller().name)
        return self._one(request.name)

    async def UncordonNode(
        self, request: pb.UncordonNodeRequest, context: Context
    ) -> node_pb2.Node:
        had = self._cluster.nodes().get(request.name)
        now = await self._cluster.set_cordoned(request.name, False, "", current_caller().name)
        if now.held:
            raise Conflict(
                _still_closed(now, lifted=had is not None and had.cordoned), reason="NODE_HELD"
            )
        return self._one(request.name)

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Context) -> node_pb2.Node:
        await self._cluster.drain(request.name, _reason(request.reason), current_caller().name)
        return self._one(request.name)

    async def LabelNode(self, request: pb.LabelNodeRequest, context: Context) -> node_pb2.Node:
        labels.check(request, self._watched_labels)
        await self._cluster.set_labels(request.name, lambda had: labels.change(had, request))
        return self._one(request.name)

    async def ListGroups(
        self, request: pb.ListGroupsRequest, context: Context
    ) -> pb.ListGroupsResponse:
        return pb.ListGroupsResponse(groups=await self._groups.all())

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, context: Context) -> node_pb2.Group:
        work = self._groups.preview if request.validate_only else self._groups.update
        return await work(request)

    async def GetSnapshot(
        self, request: pb.GetSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.GetSnapshotResponse]:
        async for part in dump(self._scheduling, anonymous=request.anonymous):
            yield pb.GetSnapshotResponse(data=part)

    def _nodes(self, group: str, after: int) -> Iterator[node_pb2.Node]:
        """As they are now; each becomes a message when it is asked for."""
        self._board.refresh()
        sees, found = self._sees(), self._board.nodes(group, after)
        return (entry_to_proto(version, entry, sees) for version, entry in found)

    def _one(self, name: str) -> node_pb2.Node:
        self._board.refresh()
        found = self._board.node(name)
        if found is None:
            raise NotFound(f"there is no node {name!r}; `hai nodes` lists them")
        return entry_to_proto(found[0], found[1], self._sees())

    def _sees(self) -> Callable[[int], bool]:
        identity = current_caller()
        return lambda task_id: self._access.sees_unfinished(identity, task_id)


def _still_closed(node: Node, *, lifted: bool) -> str:
    """The server may not change nodes in Kubernetes: a person who may has to."""
    what = (
        f"node {node.name} is no longer cordoned in HAI, but still takes no new work"
        if lifted
        else f"node {node.name} takes no new work, and it is not HAI that has cordoned it"
    )
    help = f"Lift it with: {node.lift}" if node.lift else "`kubectl describe node` says more"
    return f"{what}: {node.held}. {help}"


def _reason(text: str) -> str:
    rules = Rules()
    rules.line("reason", text, limits.REASON_CHARS)
    rules.check()
    return text
