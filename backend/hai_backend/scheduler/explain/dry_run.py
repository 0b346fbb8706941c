"""A dry run: what the next pass would do with one more task, found by making that pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import SchedTask, Snapshot
from hai_backend.scheduler.capacity.slots import Grip, Holder
from hai_backend.scheduler.explain.blockers import QuotaUse, quota_use
from hai_backend.scheduler.explain.probe import Probe, look, part
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.cost import loss, work_lost
from hai_backend.scheduler.queue.rating import run_level

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
"""Reasons that no waiting ends, with the quota, the nodes and the rules of today."""


class Outcome(StrEnum):
    """Stable, shown to users."""

    STARTS = "STARTS"  # at once
    PROMISED = "PROMISED"  # starts when others have left
    WAITS = "WAITS"
    NEVER = "NEVER"


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that leaves before the task can start. `asked`: it has been asked to before, for whomever."""

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
    """The answer. `wait` stands for whatever does not start at once."""

    outcome: Outcome
    level: Priority
    nodes: tuple[str, ...] = ()  # that it gets, or is promised
    victims: tuple[Victim, ...] = ()
    quota: tuple[QuotaUse, ...] = ()
    wait: Wait | None = None


def trial(snapshot: Snapshot, task: SchedTask, policy: Policy) -> DryRun:
    """What would become of this task, were it submitted now. Its id must be new and larger than all others."""
    with_it = replace(snapshot, tasks=(*snapshot.tasks, task))
    found = look(part(with_it, task.group), task.id, policy)
    wait = next((w for w in found.board.waits() if w.task == task.id), None)
    waiting = found.waiting
    return DryRun(
        outcome=_outcome(found, wait),
        level=waiting.own_level if waiting else task.priority,
        nodes=_nodes(found),
        victims=tuple(_victims(found, snapshot.now)),
        quota=tuple(quota_use(found.seating.group, waiting)) if found.seating and waiting else (),
        wait=wait,
    )


def _outcome(found: Probe, wait: Wait | None) -> Outcome:
    if found.served:
        return Outcome.STARTS if found.start else Outcome.PROMISED
    return Outcome.NEVER if wait is None or wait.why in NEVER else Outcome.WAITS


def _place(found: Probe) -> Holder | None:
    return found.seating.place_of(found.task) if found.seating and found.served else None


def _nodes(found: Probe) -> tuple[str, ...]:
    if found.start is not None:
        return found.start.nodes
    place = _place(found)
    return tuple(spot.name for spot in place.spots) if place else ()


def _victims(found: Probe, now: float) -> Iterator[Victim]:
    """Everybody who leaves the nodes that are promised, and who is asked to for it."""
    place, asked = _place(found), {victim.task: victim for victim in found.victims}
    if place is None or found.seating is None:
        return
    on = {h.task.id: h for spot in place.spots for h in spot.holders if h.grip is Grip.LEAVING}
    policy, holders = found.seating.group.policy, found.seating.group.holders
    for number in sorted(on.keys() | asked.keys()):
        task = (on.get(number) or holders[number]).task
        yield Victim(
            number,
            task.user,
            task.placed,
            run_level(task, policy),
            work_lost(task, now),
            loss(task, policy, now),
            asked=number not in asked,
            reason=asked[number].reason if number in asked else "",
        )
