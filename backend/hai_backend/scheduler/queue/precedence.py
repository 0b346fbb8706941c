"""The precedence of a task at a time: its level, its merit within the level, and the protection of a run.

The precedence changes with time: runs are demoted, grow older, use up their slices and lose their protection, and tasks
that have waited too long are lifted. So each precedence says until when it holds, and is then computed again.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf, log2
from typing import NamedTuple

from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.progress import DAY, PROTECTED_AFTER
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.policy.policy import Policy, Ranking
from hai_backend.scheduler.queue.history import BINS, STARTS, History, TaskKind, bin_of

SPOT = Priority.AUTO
"""The level of spot tasks: below every level that can be requested. Quota counts them at the requested level."""

_LEVELS = frozenset(LEVELS)
_PAST_SLICE = 0.999  # so that a task whose turn it is outranks an equal run that has used its slice
_MAX_SLICES = 8  # slices of waiting that raise the merit


class Protection(IntEnum):
    """The tasks from which a run is protected."""

    NONE = 0
    EQUALS = 1  # tasks of its own level
    ALL = 2  # tasks of all levels that are not urgent
    URGENT = 3  # tasks of all levels


class Precedence(NamedTuple):
    """The precedence of a run, valid until `until`.

    Within a level, the run or queued task with the higher merit comes first.
    """

    level: Priority
    merit: float
    until: float
    protection: Protection
    # protection from all levels that are not urgent, from its own level, from all levels
    protection_ends: tuple[float, float, float]


def task_kind(task: SchedTask) -> TaskKind:
    """Return the kind of a task, by which the history finds tasks like it."""
    return (task.user, task.name, task.node_count, task.gpu)


QueuedPrecedence = tuple[Priority, float, float, bool]
"""The precedence of a queued task: level, merit, until when both hold, whether the task was lifted.

There are many queued tasks, so this is a plain tuple.
"""


def compute_queued_precedence(
    task: SchedTask, level: Priority, merit: float, policy: Policy, now: float, turn: bool = False
) -> QueuedPrecedence:
    """Compute the precedence of a queued task.

    `level` is the requested level, or the level that AUTO was resolved to. `turn` is true for the first task of a user
    who has no nodes.
    """
    if task.spot:
        return (SPOT, merit, inf, False)
    lift = wait_began_at(task) + policy.patience_seconds
    if now >= lift:
        return (max(level, policy.lifted_to), inf, inf, True)
    if not turn:
        return (level, merit, lift, False)
    slices, until = _slices_waited(task, policy, now)
    return (level, merit * policy.staying**slices, min(until, lift), False)


def compute_run_precedence(
    task: SchedTask, weight: float, history: History, policy: Policy, now: float
) -> Precedence:
    """Compute the precedence of a run that has requested `weight` nodes.

    While the run is protected from equals, its merit is that at the end of the protection.
    """
    began = now if task.run_started_at is None else task.run_started_at
    level, demotion = effective_level(task, policy, now)
    lifted = began - wait_began_at(task) >= policy.patience_seconds and not task.spot
    end = began + slice_left(task, policy)
    # A demoted run keeps its nodes for its whole slice against tasks of its new level.
    demoted = level < run_level(task, policy) and not task.spot
    least = max(end if demoted else began, began + protection_for_lost_work(task))
    ends = _protection_ends(task, policy, began, least)
    if task.spot:
        ends = (-inf, ends[1], -inf)
    age, older = _age(task.run_seconds, began, max(now, ends[1]))
    merit = compute_merit(task, age, weight, history, policy)
    grows = policy.ranking is not Ranking.SUBMITTED
    changes = [t for t in (demotion, *ends, end, older if grows else inf) if t > now]
    return Precedence(
        level=max(level, policy.lifted_to) if lifted else level,
        merit=merit * policy.staying * (policy.staying if now < end else _PAST_SLICE),
        until=min(changes, default=inf),
        protection=_protection(ends, now),
        protection_ends=ends,
    )


def _protection(ends: tuple[float, float, float], now: float) -> Protection:
    from_all, from_equals, from_urgent = ends
    if now < from_urgent:
        return Protection.URGENT
    if now < from_all:
        return Protection.ALL
    return Protection.EQUALS if now < from_equals else Protection.NONE


def wait_began_at(task: SchedTask) -> float:
    """Return when the task began to wait; for a run, when it began to wait before the run."""
    return task.created_at if task.waiting_since is None else task.waiting_since


def level_name(level: Priority) -> str:
    """Return the name of a level that users see."""
    return "spot" if level is SPOT else level.name


def run_level(task: SchedTask, policy: Policy) -> Priority:
    """Return the level at which a run was started. Quota is counted at this level."""
    for level in (task.run_priority, task.priority):
        if level in _LEVELS:
            return level
    return policy.auto_level_when_unlimited


def effective_level(task: SchedTask, policy: Policy, now: float) -> tuple[Priority, float]:
    """Return the level of a run after demotion, and when that changes (inf for never)."""
    level = run_level(task, policy)
    demotion = policy.demotion.get(level)
    if task.spot:
        return SPOT, inf
    if demotion is None or task.run_started_at is None:
        return level, inf
    at = task.run_started_at + demotion.after_seconds
    return (level, at) if now < at else (demotion.to, inf)


def restart_seconds(task: SchedTask, policy: Policy) -> float:
    """Return the seconds that suspending the task and starting it again cost, without lost work.

    Until they are measured, the time of its saves is added to the usual cost.
    """
    if task.restart_seconds is not None:
        return task.restart_seconds
    return policy.restart_seconds + max(0.0, task.save_seconds)


def slice_seconds(task: SchedTask, policy: Policy) -> float:
    """Return how long a run may keep its nodes while equals wait."""
    return max(policy.minimum_seconds, restart_seconds(task, policy) / policy.overhead_share)


def slice_left(task: SchedTask, policy: Policy) -> float:
    """Return how much of its slice a run has left when it starts. A slice that was cut short is continued."""
    length = slice_seconds(task, policy)
    return length - task.run_seconds % length


def turn_at(task: SchedTask, policy: Policy) -> float:
    """Return when a task has waited for one slice."""
    return wait_began_at(task) + slice_seconds(task, policy)


def _protection_ends(
    task: SchedTask, policy: Policy, began: float, least: float
) -> tuple[float, float, float]:
    """Return until when a run is protected from levels that are not urgent, from equals, and from all levels.

    From equals it is protected at least until `least`. A suspension counts for one day. So the protection from the last
    n suspensions ends a day after the first of them at the latest.
    """
    without_progress = protection_without_progress(task, policy)
    from_urgent = began + without_progress if without_progress else -inf
    from_all, higher = max(began, from_urgent), 0
    from_equals = began + policy.minimum_seconds
    for number, suspension in enumerate(reversed(task.suspensions), start=1):
        expires = suspension.at + DAY
        higher += suspension.higher
        end = began + slice_seconds(task, policy) * higher
        if number == policy.daily_suspensions:
            end = expires
        from_all = max(from_all, min(end, expires))
        from_equals = max(from_equals, min(end + policy.minimum_seconds * (1 + number), expires))
    return from_all, max(from_equals, least), from_urgent


def protection_for_lost_work(task: SchedTask) -> float:
    """Return for how long a run is protected from equals because earlier runs lost work.

    The time is that of the lost work, a day at most. Without this protection, equal tasks that do not save would
    suspend one another for ever.
    """
    return 0.0 if task.yields else min(task.lost_seconds, DAY)


def protection_without_progress(task: SchedTask, policy: Policy) -> float:
    """Return for how long a run is protected from all levels because earlier runs were suspended before they saved.

    The protection ends with the first checkpoint of the run. Without it, urgent tasks could suspend the task again and
    again before it makes any progress.
    """
    began, saved_at = task.run_started_at, task.saved_at
    has_saved = saved_at is not None and (began is None or saved_at >= began)
    if has_saved or task.unsaved_suspensions < PROTECTED_AFTER:
        return 0.0
    return policy.minimum_seconds


def compute_merit(
    task: SchedTask, age: float, weight: float, history: History, policy: Policy
) -> float:
    """Return the merit of a task that requests `weight` nodes and has run for `age` seconds."""
    match policy.ranking:
        case Ranking.LEARNED:
            return _step(history.curve(task_kind(task)).index(bin_of(age))) / weight
        case Ranking.ATTAINED:
            return 1.0 / (weight * STARTS[bin_of(age)] + 1.0)
        case Ranking.SUBMITTED:
            return 1.0


def _slices_waited(task: SchedTask, policy: Policy, now: float) -> tuple[int, float]:
    """Return how many slices a task has waited, and when it will be one more.

    If all tasks have the same merit, more than one slice changes nothing.
    """
    began, length = wait_began_at(task), slice_seconds(task, policy)
    most = 1 if policy.ranking is Ranking.SUBMITTED else _MAX_SLICES
    waited = min(most, max(0, int((now - began) / length)))
    waited += waited < most and began + (waited + 1) * length <= now
    return waited, began + (waited + 1) * length if waited < most else inf


def _step(index: float) -> float:
    """Round a merit to steps of 9 %, so that nearly equal tasks rank by their wait and small changes move no task."""
    return 2.0 ** (round(log2(index) * 8) / 8) if index > 0 else 0.0


def _age(earlier: float, began: float, now: float) -> tuple[float, float]:
    """Return the age of a run in full bins of the history, and when the run enters the next bin.

    Both are computed from one sum, so that rounding errors cannot make them disagree.
    """
    born, now = began - earlier, max(now, began)
    bin = bin_of(max(0.0, now - born))
    while bin + 1 < BINS and born + STARTS[bin + 1] <= now:
        bin += 1
    while bin and born + STARTS[bin] > now:
        bin -= 1
    return STARTS[bin], born + STARTS[bin + 1] if bin + 1 < BINS else inf
