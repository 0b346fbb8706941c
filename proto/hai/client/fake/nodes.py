"""The services of the fake server for nodes, for the server itself, and for watches of tasks and nodes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from hai.client.connection.streams import merge_streams
from hai.client.errors import NotFound
from hai.client.fake.tasks import FakeTaskService
from hai.client.fake.world import FakeService, copy, is_waiting
from hai.v1 import node_service_pb2 as nodes
from hai.v1 import watch_service_pb2 as rpc
from hai.v1.node_pb2 import NODE_STATE_READY, Group, Node
from hai.v1.policy_pb2 import SchedulingPolicy
from hai.v1.server_service_pb2 import GetServerInfoRequest, ServerInfo


class FakeNodeService(FakeService):
    def _node(self, name: str) -> Node:
        if name not in self._world.nodes:
            raise NotFound(f"there is no node {name!r}", hint="`hai nodes` lists them")
        return self._world.nodes[name]

    def _nodes_of(self, group: str) -> list[Node]:
        return [n for _, n in sorted(self._world.nodes.items()) if group in ("", n.group)]

    async def ListNodes(self, request: nodes.ListNodesRequest) -> nodes.ListNodesResponse:
        return nodes.ListNodesResponse(nodes=self._nodes_of(request.group))

    async def GetNode(self, request: nodes.GetNodeRequest) -> Node:
        return copy(self._node(request.name))

    async def WatchNodes(
        self, request: nodes.WatchNodesRequest
    ) -> AsyncIterator[nodes.WatchNodesResponse]:
        last_version, is_first = request.after_version, request.after_version == 0
        while True:
            changed = [
                n for n in self._nodes_of(request.group) if is_first or n.version > last_version
            ]
            if changed or is_first:
                last_version, is_first = self._world.version, False
                yield nodes.WatchNodesResponse(nodes=changed, version=last_version)
            if not changed or last_version == self._world.version:
                await self._world.next_change()

    async def CordonNode(self, request: nodes.CordonNodeRequest) -> Node:
        return self._cordon(request.name, True, request.reason)

    async def UncordonNode(self, request: nodes.UncordonNodeRequest) -> Node:
        return self._cordon(request.name, False, "")

    async def DrainNode(self, request: nodes.DrainNodeRequest) -> Node:
        return self._cordon(request.name, True, request.reason)

    async def LabelNode(self, request: nodes.LabelNodeRequest) -> Node:
        """Accept every key and value. Only a real server validates them."""
        node = self._node(request.name)
        for key in request.remove:
            node.labels.pop(key, None)
        node.labels.update(request.labels)
        return self._world.node_changed(node)

    def _cordon(self, name: str, cordoned: bool, reason: str) -> Node:
        node = self._node(name)
        node.cordoned, node.reason = cordoned, reason
        return self._world.node_changed(node)

    async def ListGroups(self, request: nodes.ListGroupsRequest) -> nodes.ListGroupsResponse:
        names = sorted({node.group for node in self._world.nodes.values()})
        return nodes.ListGroupsResponse(groups=[self._group(name) for name in names])

    async def UpdateGroup(self, request: nodes.UpdateGroupRequest) -> Group:
        """The effect of a preview is always empty, because there is no scheduler."""
        if not self._nodes_of(request.name):
            raise NotFound(f"there is no node group {request.name!r}")
        before = copy(self._policy(request.name)), request.name in self._world.packed
        self._apply(request)
        group = self._group(request.name)
        if request.validate_only:
            group.effect.SetInParent()
            self._set(request.name, *before)
        return group

    async def GetSnapshot(
        self, request: nodes.GetSnapshotRequest
    ) -> AsyncIterator[nodes.GetSnapshotResponse]:
        """Yield a snapshot that has only nodes."""
        found = [{"name": n.name, "group": n.group, "gpus": n.gpus} for n in self._nodes_of("")]
        header = {"format": "hai.snapshot", "version": 1, "now": self._world.now}
        yield nodes.GetSnapshotResponse(
            data=json.dumps({**header, "nodes": found, "tasks": []}).encode() + b"\n"
        )

    def _apply(self, request: nodes.UpdateGroupRequest) -> None:
        policy, packed = copy(self._policy(request.name)), request.name in self._world.packed
        settings = copy(request.policy)
        for name in policy.DESCRIPTOR.fields_by_name:
            is_changed = f"policy.{name}" in request.update_mask.paths
            (policy if is_changed else settings).ClearField(name)  # type: ignore[arg-type]
        policy.MergeFrom(settings)
        packed = request.packed if "packed" in request.update_mask.paths else packed
        self._set(request.name, policy, packed)

    def _set(self, name: str, policy: SchedulingPolicy, packed: bool) -> None:
        self._world.policies[name] = policy
        (self._world.packed.add if packed else self._world.packed.discard)(name)

    def _policy(self, name: str) -> SchedulingPolicy:
        return self._world.policies.get(name, SchedulingPolicy())

    def _group(self, name: str) -> Group:
        members = self._nodes_of(name)
        usable = [n for n in members if n.state == NODE_STATE_READY and not n.cordoned]
        return Group(
            name=name,
            packed=name in self._world.packed,
            nodes=len(members),
            usable_nodes=len(usable),
            free_nodes=sum(not n.tenants for n in usable),
            waiting_tasks=sum(
                t.group == name and is_waiting(t) and not (t.held or t.awaited)
                for t in self._world.tasks.values()
            ),
            policy=self._policy(name),
            policy_in_force=self._policy(name),
        )


class FakeServerService(FakeService):
    async def GetServerInfo(self, request: GetServerInfoRequest) -> ServerInfo:
        return ServerInfo(
            version="fake",
            protocol="hai.v1",
            cluster="fake",
            launcher="process",
            time=self._world.time(),
        )


class FakeWatchService(FakeService):
    async def Watch(self, request: rpc.WatchRequest) -> AsyncGenerator[rpc.WatchResponse, None]:
        async with aclosing(merge_streams(self._tasks(request), self._nodes(request))) as answers:
            async for answer in answers:
                yield answer

    async def _tasks(self, request: rpc.WatchRequest) -> AsyncGenerator[rpc.WatchResponse, None]:
        async for answer in FakeTaskService(self._world).WatchTasks(request.tasks):
            yield rpc.WatchResponse(tasks=answer)

    async def _nodes(self, request: rpc.WatchRequest) -> AsyncGenerator[rpc.WatchResponse, None]:
        async for answer in FakeNodeService(self._world).WatchNodes(request.nodes):
            yield rpc.WatchResponse(nodes=answer)
