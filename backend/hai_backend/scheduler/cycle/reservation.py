"""A blocked task holds a reservation at its earliest start; others may pass only if they do not delay it (backfill).

Only the first task that lacks nodes holds one: the nodes that will be free first, or may be taken first from runs that
rank below it. Who passes must give its nodes back when the time has come: it ranks below, so that they can be taken
back (after the minimum of a run at the latest), or history expects it to have ended. So only tasks of the same user,
which never interrupt one another, and groups without time slices need more than the ranks; with slices, an own task is
held back only for a start that is nearer than the minimum of a run.

Who was lifted has waited for long enough: who passes it must be gone, or unprotected, by the time that it may start.
Each new run is protected for its minimum, so in a stream of them a gang would never find all its nodes at one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.resources import plus, ranks_in
from hai_backend.scheduler.capacity.slots import Grip, Holder, Slot
from hai_backend.scheduler.group_state import GroupState
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.preemption.eligibility import spared, taken_at
from hai_backend.scheduler.queue.history import History
from hai_backend.scheduler.queue.queue import Verdict, Waiting
from hai_backend.scheduler.queue.rating import like, running_worth
from hai_backend.scheduler.quota import UNIT


@dataclass(frozen=True, slots=True)
class Reservation:
    """The nodes that a task is waiting for, and when it is expected to start on them; inf: nobody knows."""

    now: float
    start: float
    spots: tuple[Slot, ...]


def gives_back(filler: Waiting, first: Waiting, policy: Policy) -> bool:
    """Could the first task take the nodes of this one back, once it runs? Of who was lifted each case is looked at."""
    if first.lifted:
        return False
    if filler.level < first.level:
        return True
    return policy.time_slices and filler.task.user != first.task.user


def outlasts(filler: Waiting, first: Waiting, reserved: Reservation, group: GroupState) -> bool:
    """Would this one, started now, still run when the reservation begins, and keep its nodes?"""
    policy, now = group.policy, reserved.now
    if first.lifted:
        returned = _back_at(filler, first, group, now) <= reserved.start
    else:
        returned = policy.time_slices and reserved.start > now + policy.minimum_seconds
    return not returned and _expected_end(filler.task, group.history, now) > reserved.start


def _back_at(filler: Waiting, first: Waiting, group: GroupState, now: float) -> float:
    """From when on the first task may take the nodes of this one, were it started now; inf: never."""
    run = replace(filler.task, run_started_at=now, run_priority=filler.own_level)
    worth = running_worth(run, filler.need.units / UNIT, group.history, group.policy, now)
    holder = Holder(run, Grip.HELD, worth)
    if spared(first, holder, group.policy, now) is not Verdict.LINE:
        return inf
    return taken_at(holder, first, group.policy, group.shares)


def reservation(group: GroupState, waiting: Waiting, now: float) -> Reservation:
    """What the first task that lacks nodes is waiting for."""
    need, times = waiting.need, dict[Holder, float]()
    spots = group.pool.spots_for(need)
    for holder in {holder for spot in spots for holder in spot.holders}:
        times[holder] = _gone_at(holder, waiting, group, now)
    offers = [
        (at, spot.grip is not Grip.EMPTY, spot.name, spot)
        for spot in spots
        for at in _rank_times(spot, waiting, times, now)
    ]
    offers.sort(key=lambda offer: offer[:3])
    chosen = offers[: need.count]
    start = chosen[-1][0] if len(chosen) == need.count else inf
    # Now: it was tried. Some of them are guaranteed to others, or it leaves them alone for a while.
    start = inf if start <= now else start
    return Reservation(now, start, tuple(dict.fromkeys(spot for *_, spot in chosen)))


def _rank_times(
    spot: Slot, waiting: Waiting, times: Mapping[Holder, float], now: float
) -> list[float]:
    """When the spot has room for a first, second ... rank."""
    need = waiting.need
    if need.whole or need.only:
        return [max((times[holder] for holder in spot.holders), default=now)]
    room, found = spot.free, [now] * ranks_in(spot.free, need.ask)
    for holder in sorted(spot.holders, key=lambda holder: (times[holder], holder.task.id)):
        room = plus(room, spot.taken_by(holder))
        found += [times[holder]] * (ranks_in(room, need.ask) - len(found))
    return found


def _gone_at(holder: Holder, waiting: Waiting, group: GroupState, now: float) -> float:
    """When the waiting task may have what this one holds."""
    if holder.grip is Grip.LEAVING:
        return now
    if holder.worth is None:
        return inf
    own = holder.task.user == waiting.task.user
    taken = inf if own else taken_at(holder, waiting, group.policy, group.shares)
    return now if taken <= now else min(taken, _expected_end(holder.task, group.history, now))


def _expected_end(task: SchedTask, history: History, now: float) -> float:
    """At even odds."""
    age = task.run_seconds + max(0.0, now - (task.run_started_at or now))
    return now + history.curve(like(task)).remaining(age, 0.5)
