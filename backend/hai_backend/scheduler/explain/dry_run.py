"""A dry run: what the next pass would decide if one more task were submitted now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot
from hai_backend.scheduler.capacity.node_info import Allocation, Occupancy
from hai_backend.scheduler.explain.blockers import QuotaUse, list_quota_use
from hai_backend.scheduler.explain.trial_pass import TrialPass, run_pass, select_group
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.candidates import loss, work_lost
from hai_backend.scheduler.queue.precedence import run_level

NEVER = frozenset(
    {
        WaitReason.QUOTA_EXCEEDED,
        WaitReason.SHARE_EXCEEDED,
        WaitReason.NO_SUCH_GROUP,
        WaitReason.NO_SUCH_NODE,
        WaitReason.GROUP_TOO_SMALL,
        WaitReason.INVALID,
    }
)
"""Reasons that do not end with time while quota, nodes and rules stay as they are."""


class Outcome(StrEnum):
    """Stable names, which users see."""

    STARTS = "STARTS"  # it starts at once
    PROMISED = "PROMISED"  # it starts when other tasks have left their nodes
    WAITS = "WAITS"
    NEVER = "NEVER"


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that must leave before the task can start."""

    task: int
    user: str
    nodes: tuple[str, ...]
    level: Priority
    lost: float  # node-seconds of work since its checkpoint or start
    cost: float  # `lost` and the cost of the restart
    asked: bool  # whether the run was already asked to leave, for any task
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run. `wait` is set unless the task starts at once."""

    outcome: Outcome
    level: Priority
    nodes: tuple[str, ...] = ()  # that the task gets or is promised
    victims: tuple[Victim, ...] = ()
    quota: tuple[QuotaUse, ...] = ()
    wait: Wait | None = None


def dry_run(snapshot: Snapshot, task: SchedTask, policy: Policy) -> DryRun:
    """Return what would happen to this task if it were submitted now. Its id must be larger than all others."""
    extended = replace(snapshot, tasks=(*snapshot.tasks, task))
    result = run_pass(select_group(extended, task.group), task.id, policy)
    wait = next((w for w in result.cache.waits() if w.task == task.id), None)
    entry = result.entry
    return DryRun(
        outcome=_outcome(result, wait),
        level=entry.quota_level if entry else task.priority,
        nodes=_nodes(result),
        victims=tuple(_victims(result, snapshot.now)),
        quota=tuple(list_quota_use(result.cycle.group, entry)) if result.cycle and entry else (),
        wait=wait,
    )


def _outcome(result: TrialPass, wait: Wait | None) -> Outcome:
    if result.got_nodes:
        return Outcome.STARTS if result.start else Outcome.PROMISED
    return Outcome.NEVER if wait is None or wait.why in NEVER else Outcome.WAITS


def _allocation(result: TrialPass) -> Allocation | None:
    return result.cycle.allocation_of(result.task) if result.cycle and result.got_nodes else None


def _nodes(result: TrialPass) -> tuple[str, ...]:
    if result.start is not None:
        return result.start.nodes
    allocation = _allocation(result)
    return tuple(node.name for node in allocation.nodes) if allocation else ()


def _victims(result: TrialPass, now: float) -> Iterator[Victim]:
    """Yield all runs that leave the promised nodes, and those that are suspended for the task."""
    allocation, suspends = _allocation(result), {victim.task: victim for victim in result.victims}
    if allocation is None or result.cycle is None:
        return
    leaving = {
        other.task.id: other
        for node in allocation.nodes
        for other in node.allocations
        if other.occupancy is Occupancy.RELEASING
    }
    policy, allocations = result.cycle.group.policy, result.cycle.group.allocations
    for task_id in sorted(leaving.keys() | suspends.keys()):
        task = (leaving.get(task_id) or allocations[task_id]).task
        yield Victim(
            task_id,
            task.user,
            task.placed,
            run_level(task, policy),
            work_lost(task, now),
            loss(task, policy, now),
            asked=task_id not in suspends,
            reason=suspends[task_id].reason if task_id in suspends else "",
        )
