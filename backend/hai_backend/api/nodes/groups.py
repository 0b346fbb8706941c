"""Node groups for NodeService: their node counts and settings, and previews of other settings."""

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
from hai_backend.api.nodes.group_changes import update_group
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
    cluster: Cluster
    task_manager: TaskManager
    scheduling: Scheduling
    capacity: Capacity
    policy: Policy  # of the server


class NodeGroups:
    def __init__(self, deps: GroupDeps) -> None:
        self._deps = deps
        self._preview_lock = asyncio.Lock()  # One preview at a time: each takes a core for a while

    async def list_all(self) -> list[node_pb2.Group]:
        """Return all groups by name, except for groups without nodes, waiting tasks and settings."""
        groups = self._deps.cluster.groups()
        unset = {name for name, group in groups.items() if group == Group(name)}
        messages = await self._messages([groups[name] for name in sorted(groups)])
        return [m for m in messages if m.nodes or m.waiting_tasks or m.name not in unset]

    async def update(self, request: UpdateGroupRequest) -> node_pb2.Group:
        """Change a group and return it. Raises Invalid or Conflict."""
        cluster = self._deps.cluster
        async with cluster.placement_lock:
            before = self._get(request.name)
            group = update_group(before, request, self._deps.policy)
            self._refuse_repacking(before, group)
            await cluster.save_group(group)
        describe_change(difference(before, group, self._deps.policy))
        self._deps.capacity.invalidate()
        return (await self._messages([group]))[0]

    async def preview(self, request: UpdateGroupRequest) -> node_pb2.Group:
        """Return the group after the change, and its effect on the next scheduling pass. Raises as `update` does."""
        before = self._get(request.name)
        group = update_group(before, request, self._deps.policy)
        self._refuse_repacking(before, group)
        async with self._preview_lock:
            snapshot = await self._deps.scheduling.snapshot()
            effect = await asyncio.to_thread(preview, snapshot, group, self._deps.policy)
        (message,) = await self._messages([group])
        message.effect.CopyFrom(effect_to_proto(effect, self._deps.task_manager.unfinished().get))
        return message

    def _get(self, name: str) -> Group:
        return self._deps.cluster.groups().get(name, Group(name))

    def _refuse_repacking(self, before: Group, group: Group) -> None:
        """Raise Conflict if nodes that tasks hold would become shared, or would no longer be shared."""
        if before.packed == group.packed:
            return
        nodes = self._deps.cluster.nodes().values()
        names = {node.name for node in nodes if node.group == group.name}
        if ids := tasks_holding(self._deps.task_manager.unfinished().values(), group.name, names):
            first = ", ".join(str(i) for i in ids[:5]) + (", …" if len(ids) > 5 else "")
            raise Conflict(
                f"group {group.name} cannot change how its nodes are shared while tasks are on them"
                f" ({first}): drain its nodes first",
                reason="GROUP_IN_USE",
            )

    async def _messages(self, groups: list[Group]) -> list[node_pb2.Group]:
        """Build messages in a thread, because all nodes and tasks are counted."""
        nodes = [*self._deps.cluster.nodes().values()]
        tasks = [*self._deps.task_manager.unfinished().values()]
        return await asyncio.to_thread(_messages, groups, nodes, tasks, self._deps.policy)


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
    """Describe the changed values for the audit: `staying: 1.6 (default) -> 2.0`."""
    old, new = _format_values(before, base), _format_values(after, base)
    lines = (f"{name}: {old[name]} -> {new[name]}" for name in old if old[name] != new[name])
    return "; ".join(lines) or "nothing changed"


def _format_values(group: Group, base: Policy) -> Mapping[str, str]:
    own_settings, policy = settings(group), to_mapping(resolve_policy(group, base))
    values: dict[str, Any] = {"packed": group.packed, **policy}
    return {
        name: f"{value}" if name in own_settings or name == "packed" else f"{value} (default)"
        for name, value in values.items()
    }
