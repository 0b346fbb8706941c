"""A dry run: what the next pass would do with one more task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot
from hai_backend.scheduler.capacity.node_info import Allocation, Occupancy
from hai_backend.scheduler.explain.blockers import QuotaUse, quota_use
from hai_backend.scheduler.explain.trial_pass import Probe, part, run_pass
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
"""Reasons that no waiting ends, with the quota, nodes and rules as they are now."""


class Outcome(StrEnum):
    """Stable names, which users see."""

    STARTS = "STARTS"  # at once
    PROMISED = "PROMISED"  # starts when others have left
    WAITS = "WAITS"
    NEVER = "NEVER"


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that leaves before the task can start. `asked`: it was asked to leave before, for any task."""

    task: int
    user: str
    nodes: tuple[str, ...]
    level: Priority
    lost: float  # node-seconds of work since its checkpoint or start
    cost: float  # the same with what it costs to start again
    asked: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result. `wait` is set unless the task starts at once."""

    outcome: Outcome
    level: Priority
    nodes: tuple[str, ...] = ()  # that it gets or is promised
    victims: tuple[Victim, ...] = ()
    quota: tuple[QuotaUse, ...] = ()
    wait: Wait | None = None


def dry_run(snapshot: Snapshot, task: SchedTask, policy: Policy) -> DryRun:
    """What would happen to this task if it were submitted now. Its id must be larger than all others."""
    extended = replace(snapshot, tasks=(*snapshot.tasks, task))
    found = run_pass(part(extended, task.group), task.id, policy)
    wait = next((w for w in found.cache.waits() if w.task == task.id), None)
    waiting = found.waiting
    return DryRun(
        outcome=_outcome(found, wait),
        level=waiting.quota_level if waiting else task.priority,
        nodes=_nodes(found),
        victims=tuple(_victims(found, snapshot.now)),
        quota=tuple(quota_use(found.cycle.group, waiting)) if found.cycle and waiting else (),
        wait=wait,
    )


def _outcome(found: Probe, wait: Wait | None) -> Outcome:
    if found.served:
        return Outcome.STARTS if found.start else Outcome.PROMISED
    return Outcome.NEVER if wait is None or wait.why in NEVER else Outcome.WAITS


def _allocation(found: Probe) -> Allocation | None:
    return found.cycle.allocation_of(found.task) if found.cycle and found.served else None


def _nodes(found: Probe) -> tuple[str, ...]:
    if found.start is not None:
        return found.start.nodes
    allocation = _allocation(found)
    return tuple(node.name for node in allocation.nodes) if allocation else ()


def _victims(found: Probe, now: float) -> Iterator[Victim]:
    """All runs that leave the promised nodes, and those that are suspended for the task."""
    allocation, suspends = _allocation(found), {victim.task: victim for victim in found.victims}
    if allocation is None or found.cycle is None:
        return
    leaving = {
        other.task.id: other
        for node in allocation.nodes
        for other in node.allocations
        if other.occupancy is Occupancy.RELEASING
    }
    policy, allocations = found.cycle.group.policy, found.cycle.group.allocations
    for number in sorted(leaving.keys() | suspends.keys()):
        task = (leaving.get(number) or allocations[number]).task
        yield Victim(
            number,
            task.user,
            task.placed,
            run_level(task, policy),
            work_lost(task, now),
            loss(task, policy, now),
            asked=number not in suspends,
            reason=suspends[number].reason if number in suspends else "",
        )
