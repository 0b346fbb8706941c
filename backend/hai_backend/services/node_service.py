"""NodeService: nodes, who holds them, and the groups that they form."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from hai.v1 import node_pb2
from hai.v1 import node_service_pb2 as pb
from hai.v1.node_service_pb2_grpc import NodeServiceServicer
from hai_backend.domain.errors import Conflict, NotFound
from hai_backend.domain.node import Group, Node
from hai_backend.services import caller, limits
from hai_backend.services.bundling import by_size
from hai_backend.services.capacity import Capacity
from hai_backend.services.holding import nodes_held, tasks_holding
from hai_backend.services.node_board import NodeBoard, entry_to_proto
from hai_backend.services.ports import Cluster, Ledger
from hai_backend.services.rules import NAME, Rules
from hai_backend.services.task_access import TaskAccess
from hai_backend.services.watching import BUNDLE_SECONDS
from hai_backend.services.wrapping import Context


class NodeService(NodeServiceServicer):
    """See proto/hai/v1/node_service.proto for what each call means."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        board: NodeBoard,
        capacity: Capacity,
        access: TaskAccess,
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._board = board
        self._capacity = capacity
        self._access = access

    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        return pb.ListNodesResponse(nodes=self._nodes(request.group))

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
            *parts, last = by_size(nodes)
            for part in parts:
                yield pb.WatchNodesResponse(nodes=part, version=sent)
            if last or first:
                yield pb.WatchNodesResponse(nodes=last, version=upto)
            sent, first = upto, False
            await self._board.beyond(sent)
            await asyncio.sleep(BUNDLE_SECONDS)

    async def CordonNode(self, request: pb.CordonNodeRequest, context: Context) -> node_pb2.Node:
        reason = _reason(request.reason)
        await self._cluster.set_cordoned(request.name, True, reason, caller.current().name)
        return self._one(request.name)

    async def UncordonNode(
        self, request: pb.UncordonNodeRequest, context: Context
    ) -> node_pb2.Node:
        await self._cluster.set_cordoned(request.name, False, "", caller.current().name)
        return self._one(request.name)

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Context) -> node_pb2.Node:
        await self._cluster.drain(request.name, _reason(request.reason), caller.current().name)
        return self._one(request.name)

    async def ListGroups(
        self, request: pb.ListGroupsRequest, context: Context
    ) -> pb.ListGroupsResponse:
        return pb.ListGroupsResponse(groups=self._groups())

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, context: Context) -> node_pb2.Group:
        rules = Rules()
        rules.matching("name", request.name, NAME, "a group's name")
        rules.check()
        group = Group(request.name, request.packed)
        async with self._cluster.steady:
            self._refuse_repacking(group)
            await self._cluster.save_group(group, caller.current().name)
        self._capacity.forget()
        return next(group for group in self._groups() if group.name == request.name)

    def _refuse_repacking(self, group: Group) -> None:
        """Whoever was given a whole node must not find others on it, nor the other way round."""
        before = self._cluster.groups().get(group.name, Group(group.name))
        if before.packed == group.packed:
            return
        names = {node.name for node in self._cluster.nodes().values() if node.group == group.name}
        if ids := tasks_holding(self._ledger.unfinished().values(), group.name, names):
            first = ", ".join(str(i) for i in ids[:5]) + (", …" if len(ids) > 5 else "")
            raise Conflict(
                f"group {group.name} cannot change how its nodes are shared while tasks are on them"
                f" ({first}): drain its nodes first",
                reason="GROUP_IN_USE",
            )

    def _nodes(self, group: str, after: int = 0) -> list[node_pb2.Node]:
        self._board.refresh()
        sees = self._sees()
        return [
            entry_to_proto(version, entry, sees)
            for version, entry in self._board.nodes(group, after)
        ]

    def _one(self, name: str) -> node_pb2.Node:
        self._board.refresh()
        found = self._board.node(name)
        if found is None:
            raise NotFound(f"there is no node {name!r}; `hai nodes` lists them")
        return entry_to_proto(found[0], found[1], self._sees())

    def _sees(self) -> Callable[[int], bool]:
        identity = caller.current()
        return lambda task_id: self._access.sees_unfinished(identity, task_id)

    def _groups(self) -> list[node_pb2.Group]:
        tasks = self._ledger.unfinished().values()
        held = nodes_held(tasks)
        waiting = Counter(task.spec.resource.group for task in tasks if task.waiting)
        members: dict[str, list[Node]] = {}
        for node in self._cluster.nodes().values():
            members.setdefault(node.group, []).append(node)
        return [
            _group(group, members.get(group.name, []), held, waiting[group.name])
            for group in sorted(self._cluster.groups().values(), key=lambda group: group.name)
        ]


def _group(group: Group, members: list[Node], held: frozenset[str], waiting: int) -> node_pb2.Group:
    usable = [node for node in members if node.usable]
    return node_pb2.Group(
        name=group.name,
        packed=group.packed,
        nodes=len(members),
        usable_nodes=len(usable),
        free_nodes=sum(node.name not in held for node in usable),
        waiting_tasks=waiting,
    )


def _reason(text: str) -> str:
    rules = Rules()
    rules.line("reason", text, limits.REASON_CHARS)
    rules.check()
    return text
