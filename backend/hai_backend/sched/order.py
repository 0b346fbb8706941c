"""Who comes first. Within a level the ranking decides: today first submission, the one seam for fairness and learned
rankings; then the user's own wishes, which move only the user's own tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hai_backend.domain.plan import WaitReason
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.snapshot import SchedTask
from hai_backend.sched.policy import Policy
from hai_backend.sched.pool import Need

_LEVELS = frozenset(LEVELS)


@dataclass(slots=True, eq=False)
class Waiting:
    """A queued task that competes for nodes, at its effective level; why and message once it was not started."""

    task: SchedTask
    need: Need
    level: Priority
    why: WaitReason = WaitReason.NOT_ENOUGH_NODES
    message: str = ""


def rank(task: SchedTask) -> float:
    """The ranking within a level, smallest first. The seam: fairness and expected remaining time go here."""
    return task.created_at


def in_order(queue: Iterable[Waiting]) -> list[Waiting]:
    """Highest level first, then the ranking. A user's tasks take that user's places in the order the user wants."""
    order = sorted(queue, key=lambda w: w.task.id)
    order.sort(key=lambda w: rank(w.task))
    order.sort(key=lambda w: w.level, reverse=True)  # stable: the last sort counts most
    return _as_wished(order) if any(w.task.custom_rank for w in order) else order


def run_level(task: SchedTask, policy: Policy) -> Priority:
    """The level at which a task's run was started; quota counts it there."""
    for level in (task.run_priority, task.priority):
        if level in _LEVELS:
            return level
    return policy.auto_level_when_unlimited


def effective_level(task: SchedTask, policy: Policy, now: float) -> Priority:
    """The level at which a run defends its nodes: long runs of some levels count as lower ones."""
    level = run_level(task, policy)
    demotion = policy.demotion.get(level)
    if demotion is None or task.run_started_at is None:
        return level
    return demotion.to if now - task.run_started_at >= demotion.after_seconds else level


def demoted_at(task: SchedTask, policy: Policy) -> float | None:
    """When a run starts to count as a lower level; None: never."""
    demotion = policy.demotion.get(run_level(task, policy))
    if demotion is None or task.run_started_at is None:
        return None
    return task.run_started_at + demotion.after_seconds


def _as_wished(order: list[Waiting]) -> list[Waiting]:
    """The same places for each user, filled in the order that the user wants."""
    own: dict[tuple[str, Priority], list[Waiting]] = {}
    for waiting in order:
        own.setdefault((waiting.task.user, waiting.level), []).append(waiting)
    wished = {
        key: iter(sorted(tasks, key=lambda w: w.task.custom_rank)) for key, tasks in own.items()
    }
    return [next(wished[waiting.task.user, waiting.level]) for waiting in order]
