"""Builders for snapshots, so that a test or the simulator writes only the facts that matter to it."""

from __future__ import annotations

from typing import Any

from hai_backend.domain.node import Group, Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import (
    QuotaRow,
    SchedTask,
    SchedulingState,
    ShareRow,
    Snapshot,
)

NOW = 1_000_000.0


def node(name: str, *, up: bool = True, **settings: Any) -> Node:
    """Return a ready node of the default group."""
    return Node(name, state=NodeState.READY if up else NodeState.NOT_READY, **settings)


def nodes(count: int, **settings: Any) -> list[Node]:
    """Return `count` equal nodes n00, n01, ..."""
    return [node(f"n{i:02}", **settings) for i in range(count)]


def queued(
    task: int, count: int = 1, priority: Priority = Priority.NORMAL, **settings: Any
) -> SchedTask:
    """Return a queued task of user `u<id>`. Tasks are submitted in the order of their ids."""
    facts: dict[str, Any] = {
        "id": task,
        "user": f"u{task}",
        "group": "default",
        "node_count": count,
        "priority": priority,
        "created_at": NOW - 1000.0 + task,
    }
    return SchedTask(**(facts | settings))


def running(
    task: int, on: str, level: Priority = Priority.NORMAL, *, since: float = 60.0, **settings: Any
) -> SchedTask:
    """Return a task that has run for `since` seconds on the nodes in `on`, a list of names separated by blanks."""
    placed = tuple(on.split())
    facts: dict[str, Any] = {
        "standing": SchedulingState.RUNNING,
        "placed": placed,
        "run_priority": level,
        "run_started_at": NOW - since,
    }
    return queued(task, len(placed), **({"priority": level} | facts | settings))


def leaving(
    task: int, on: str, level: Priority = Priority.NORMAL, *, reserved_for: int = 0, **settings: Any
) -> SchedTask:
    """Return a task that was asked to leave the nodes in `on`."""
    facts: dict[str, Any] = {"standing": SchedulingState.LEAVING, "suspended_for": reserved_for}
    return running(task, on, level, **(facts | settings))


def starting(task: int, on: str, level: Priority = Priority.NORMAL, **settings: Any) -> SchedTask:
    """Return a task that is being started on the nodes in `on`, so that it cannot be suspended."""
    return leaving(task, on, level, leaves_free=False, **settings)


def quota(user: str, priority: Priority, count: int, group: str = "default") -> QuotaRow:
    """Return a quota row: `user` may use `count` nodes at a priority, or in total for AUTO."""
    return QuotaRow(user, group, priority, count)


def share(users: str, guaranteed: int = 0, weight: int = 0, limit: int | None = None) -> ShareRow:
    """Return a share of the default group, named `users`, for these users, whose names are separated by blanks."""
    return ShareRow(users, "default", frozenset(users.split()), guaranteed, weight, limit)


def snap(
    *parts: Node | list[Node] | SchedTask | QuotaRow | ShareRow | Group, **settings: Any
) -> Snapshot:
    """Return a snapshot at NOW of these parts, in any order."""
    flat = [part for item in parts for part in (item if isinstance(item, list) else [item])]
    return Snapshot(
        now=settings.pop("now", NOW),
        nodes=tuple(part for part in flat if isinstance(part, Node)),
        tasks=tuple(part for part in flat if isinstance(part, SchedTask)),
        groups={part.name: part for part in flat if isinstance(part, Group)},
        quotas=tuple(part for part in flat if isinstance(part, QuotaRow)),
        shares=tuple(part for part in flat if isinstance(part, ShareRow)),
        **settings,
    )
