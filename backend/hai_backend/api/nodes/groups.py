"""Node groups: their numbers, their settings, and what other settings would change. NodeService asks here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hai.v1 import node_pb2
from hai.v1.node_service_pb2 import UpdateGroupRequest
from hai_backend.api.audit.rows import describe_change
from hai_backend.api.nodes.allocation import nodes_held, tasks_holding
from hai_backend.api.nodes.group_capacity import Capacity
from hai_backend.api.nodes.group_changes import changed
from hai_backend.api.protocols import Cluster, Scheduling, TaskManager
from hai_backend.api.scheduling.convert_policy import effect_to_proto, policy_to_proto
from hai_backend.domain.errors import Conflict
from hai_backend.domain.node import Group, Node
from hai_backend.domain.task import Task
from hai_backend.scheduler.policy.group_policy import resolve_policy, settings
from hai_backend.scheduler.policy.policy import Policy, to_mapping
from hai_backend.scheduler.policy.preview import preview


@dataclass(frozen=True, slots=True)
class GroupDeps:
    """What groups are made of; `policy` is the server's own."""

    cluster: Cluster
    task_manager: TaskManager
    scheduling: Scheduling
    capacity: Capacity
    policy: Policy


class NodeGroups:
    """All groups as they are now."""

    def __init__(self, rooms: GroupDeps) -> None:
        self._rooms = rooms
        self._previewing = asyncio.Lock()  # each takes a core for a while: one at a time

    async def all(self) -> list[node_pb2.Group]:
        """By name. One that has nothing and sets nothing, as after a slip of the pen, is not listed."""
        groups = self._rooms.cluster.groups()
        unset = {name for name, group in groups.items() if group == Group(name)}
        messages = await self._messages([groups[name] for name in sorted(groups)])
        return [m for m in messages if m.nodes or m.waiting_tasks or m.name not in unset]

    async def update(self, request: UpdateGroupRequest) -> node_pb2.Group:
        """The group as it is now. Raises Invalid or Conflict."""
        cluster = self._rooms.cluster
        async with cluster.steady:
            before = self._before(request.name)
            group = changed(before, request, self._rooms.policy)
            self._refuse_repacking(before, group)
            await cluster.save_group(group)
        describe_change(difference(before, group, self._rooms.policy))
        self._rooms.capacity.forget()
        return (await self._messages([group]))[0]

    async def preview(self, request: UpdateGroupRequest) -> node_pb2.Group:
        """The group as it would be, and what the next pass would do otherwise. Raises what `update` would."""
        before = self._before(request.name)
        group = changed(before, request, self._rooms.policy)
        self._refuse_repacking(before, group)
        async with self._previewing:
            snapshot = await self._rooms.scheduling.snapshot()
            effect = await asyncio.to_thread(preview, snapshot, group, self._rooms.policy)
        (message,) = await self._messages([group])
        message.effect.CopyFrom(effect_to_proto(effect, self._rooms.task_manager.unfinished().get))
        return message

    def _before(self, name: str) -> Group:
        return self._rooms.cluster.groups().get(name, Group(name))

    def _refuse_repacking(self, before: Group, group: Group) -> None:
        """Whoever was given a whole node must not find others on it, nor the other way round."""
        if before.packed == group.packed:
            return
        nodes = self._rooms.cluster.nodes().values()
        names = {node.name for node in nodes if node.group == group.name}
        if ids := tasks_holding(self._rooms.task_manager.unfinished().values(), group.name, names):
            first = ", ".join(str(i) for i in ids[:5]) + (", …" if len(ids) > 5 else "")
            raise Conflict(
                f"group {group.name} cannot change how its nodes are shared while tasks are on them"
                f" ({first}): drain its nodes first",
                reason="GROUP_IN_USE",
            )

    async def _messages(self, groups: list[Group]) -> list[node_pb2.Group]:
        """In a thread: all nodes and tasks are counted."""
        nodes = [*self._rooms.cluster.nodes().values()]
        tasks = [*self._rooms.task_manager.unfinished().values()]
        return await asyncio.to_thread(_messages, groups, nodes, tasks, self._rooms.policy)


def _messages(
    groups: list[Group], nodes: list[Node], tasks: list[Task], policy: Policy
) -> list[node_pb2.Group]:
    held = nodes_held(tasks)
    waiting = Counter(task.spec.resource.group for task in tasks if task.needs_nodes)
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(node.group, []).append(node)
    return [
        _message(group, members.get(group.name, []), held, waiting[group.name], policy)
        for group in groups
    ]


def _message(
    group: Group, members: list[Node], held: frozenset[str], waiting: int, policy: Policy
) -> node_pb2.Group:
    usable = [node for node in members if node.usable]
    return node_pb2.Group(
        name=group.name,
        packed=group.packed,
        nodes=len(members),
        usable_nodes=len(usable),
        free_nodes=sum(node.name not in held for node in usable),
        waiting_tasks=waiting,
        policy=policy_to_proto(settings(group)),
        policy_in_force=policy_to_proto(to_mapping(resolve_policy(group, policy))),
    )


def difference(before: Group, after: Group, base: Policy) -> str:
    """Old and new values of what was changed, for the audit: `staying: 1.6 (default) -> 2.0`."""
    old, new = _told(before, base), _told(after, base)
    lines = (f"{name}: {old[name]} -> {new[name]}" for name in old if old[name] != new[name])
    return "; ".join(lines) or "nothing changed"


def _told(group: Group, base: Policy) -> Mapping[str, str]:
    own, policy = settings(group), to_mapping(resolve_policy(group, base))
    values: dict[str, Any] = {"packed": group.packed, **policy}
    return {
        name: f"{value}" if name in own or name == "packed" else f"{value} (default)"
        for name, value in values.items()
    }
