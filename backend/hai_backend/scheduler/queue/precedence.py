"""The rating of a task at a time: its level, its rank within the level (merit), its protection, and until when they
hold.

Everything that time alone changes is here: demotion, the merit of a run that grows older, slices, protection after
suspensions, and the lift of tasks that have waited too long. A rating that has expired is computed anew.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf, log2
from typing import NamedTuple

from hai_backend.domain.goodput_facts import DAY
from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.policy.policy import Policy, Ranking
from hai_backend.scheduler.queue.history import BINS, STARTS, History, Like, bin_of

SPOT = Priority.AUTO
"""The level of spot tasks: below every level that can be requested. Quota counts them at the requested level."""

_LEVELS = frozenset(LEVELS)
_PAST_SLICE = 0.999  # a task whose turn it is outranks an equal run that has used its slice
_MAX_SLICES = 8  # of waiting that raise the merit


class Guard(IntEnum):
    """From which tasks a run is protected."""

    NONE = 0
    EQUALS = 1  # from its own level
    ALL = 2  # from all levels that are not urgent


class Rating(NamedTuple):
    """The rating of a run, valid until `until`. Merit orders within a level, highest first."""

    level: Priority
    merit: float
    until: float
    guard: Guard
    guard_ends: tuple[float, float]  # from all, from equals


def like(task: SchedTask) -> Like:
    """The key of a task in the history."""
    return (task.user, task.name, task.node_count, task.gpu)


QueuedRating = tuple[Priority, float, float, bool]
"""The rating of a queued task: level, merit, until when both hold, whether it was lifted. (A plain tuple: there are
many.)
"""


def rate_queued(
    task: SchedTask, level: Priority, merit: float, policy: Policy, now: float, turn: bool = False
) -> QueuedRating:
    """Rate a queued task. `level`: what AUTO was resolved to. `turn`: it is the first task of a user without nodes."""
    if task.spot:
        return (SPOT, merit, inf, False)
    lift = since(task) + policy.patience_seconds
    if now >= lift:
        return (max(level, policy.lifted_to), inf, inf, True)
    if not turn:
        return (level, merit, lift, False)
    slices, until = _slices_waited(task, policy, now)
    return (level, merit * policy.staying**slices, min(until, lift), False)


def rate_run(
    task: SchedTask, weight: float, history: History, policy: Policy, now: float
) -> Rating:
    """Rate a run. While it is protected from equals, its merit is the one that it will have when that ends."""
    began = now if task.run_started_at is None else task.run_started_at
    level, demotion = effective_level(task, policy, now)
    lifted = began - since(task) >= policy.patience_seconds and not task.spot
    end = began + slice_left(task, policy)
    demoted = level < run_level(task, policy) and not task.spot
    least = max(end if demoted else began, began + protection_for_lost_work(task))
    ends = _guard_ends(task, policy, began, least)
    if task.spot:
        ends = (-inf, ends[1])
    guard = Guard.ALL if now < ends[0] else Guard.EQUALS if now < ends[1] else Guard.NONE
    age, older = _age(task.run_seconds, began, max(now, ends[1]))
    merit = merit_at(task, age, weight, history, policy)
    grows = policy.ranking is not Ranking.SUBMITTED
    changes = [t for t in (demotion, *ends, end, older if grows else inf) if t > now]
    return Rating(
        level=max(level, policy.lifted_to) if lifted else level,
        merit=merit * policy.staying * (policy.staying if now < end else _PAST_SLICE),
        until=min(changes, default=inf),
        guard=guard,
        guard_ends=ends,
    )


def since(task: SchedTask) -> float:
    """When the task began to wait, this time or before its run."""
    return task.created_at if task.waiting_since is None else task.waiting_since


def level_name(level: Priority) -> str:
    """The name that people see."""
    return "spot" if level is SPOT else level.name


def run_level(task: SchedTask, policy: Policy) -> Priority:
    """The level at which a task's run was started; quota counts it there."""
    for level in (task.run_priority, task.priority):
        if level in _LEVELS:
            return level
    return policy.auto_level_when_unlimited


def effective_level(task: SchedTask, policy: Policy, now: float) -> tuple[Priority, float]:
    """The level at which a run defends its nodes, and when that changes (inf: never)."""
    level = run_level(task, policy)
    demotion = policy.demotion.get(level)
    if task.spot:
        return SPOT, inf
    if demotion is None or task.run_started_at is None:
        return level, inf
    at = task.run_started_at + demotion.after_seconds
    return (level, at) if now < at else (demotion.to, inf)


def restart_seconds(task: SchedTask, policy: Policy) -> float:
    """What suspending the task and starting it again costs, beside lost work."""
    return policy.restart_seconds if task.restart_seconds is None else task.restart_seconds


def slice_seconds(task: SchedTask, policy: Policy) -> float:
    """How long a run may keep its nodes against equals."""
    return max(policy.minimum_seconds, restart_seconds(task, policy) / policy.overhead_share)


def slice_left(task: SchedTask, policy: Policy) -> float:
    """How much of its slice a starting run has: a slice that was cut short is continued."""
    length = slice_seconds(task, policy)
    return length - task.run_seconds % length


def turn_at(task: SchedTask, policy: Policy) -> float:
    """When a task has waited for one slice."""
    return since(task) + slice_seconds(task, policy)


def _guard_ends(task: SchedTask, policy: Policy, began: float, least: float) -> tuple[float, float]:
    """Until when a run is protected from all levels, and from equals (at least until `least`).

    A suspension counts for a day, so what the last n of them give ends, at the latest, a day after the first of these.
    """
    from_all, from_equals, higher = began, began + policy.minimum_seconds, 0
    for number, suspension in enumerate(reversed(task.suspensions), start=1):
        expires = suspension.at + DAY
        higher += suspension.higher
        end = began + slice_seconds(task, policy) * higher
        if number == policy.daily_suspensions:
            end = expires
        from_all = max(from_all, min(end, expires))
        from_equals = max(from_equals, min(end + policy.minimum_seconds * (1 + number), expires))
    return from_all, max(from_equals, least)


def protection_for_lost_work(task: SchedTask) -> float:
    """Seconds of lost work, a day at most, for which the next run is protected from equals. Otherwise equals that do
    not save would suspend one another for ever.
    """
    return 0.0 if task.yields else min(task.lost_seconds, DAY)


def merit_at(task: SchedTask, age: float, weight: float, history: History, policy: Policy) -> float:
    """The merit of a task that requests `weight` nodes and has run for `age` seconds."""
    match policy.ranking:
        case Ranking.LEARNED:
            return _step(history.curve(like(task)).index(bin_of(age))) / weight
        case Ranking.ATTAINED:
            return 1.0 / (weight * STARTS[bin_of(age)] + 1.0)
        case Ranking.SUBMITTED:
            return 1.0


def _slices_waited(task: SchedTask, policy: Policy, now: float) -> tuple[int, float]:
    """How many slices a task has waited, and when it will be one more. Where all tasks rank alike, one is enough."""
    began, length = since(task), slice_seconds(task, policy)
    most = 1 if policy.ranking is Ranking.SUBMITTED else _MAX_SLICES
    waited = min(most, max(0, int((now - began) / length)))
    waited += waited < most and began + (waited + 1) * length <= now
    return waited, began + (waited + 1) * length if waited < most else inf


def _step(index: float) -> float:
    """Merits have steps of 9 %: nearly equal tasks rank by their wait, and small changes move none."""
    return 2.0 ** (round(log2(index) * 8) / 8) if index > 0 else 0.0


def _age(earlier: float, began: float, now: float) -> tuple[float, float]:
    """The age of a run in full bins, and when it will be older: both from one sum, so that rounding cannot separate
    them.
    """
    born, now = began - earlier, max(now, began)
    bin = bin_of(max(0.0, now - born))
    while bin + 1 < BINS and born + STARTS[bin + 1] <= now:
        bin += 1
    while bin and born + STARTS[bin] > now:
        bin -= 1
    return STARTS[bin], born + STARTS[bin + 1] if bin + 1 < BINS else inf
