"""Why not, how far back, and whom it waits for: a sentence with numbers for a task that stays in the queue.

Asked after a pass and before its `undo`, so the nodes that others were promised count as taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from hai_backend.domain.formatting import counted, shown
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.plan import Wait, WaitReason
from hai_backend.domain.scheduling.snapshot import ShareRow
from hai_backend.scheduler import quota
from hai_backend.scheduler.capacity.fit import within
from hai_backend.scheduler.capacity.pool import Pool
from hai_backend.scheduler.capacity.slots import Grip, Kind, Need, Slot
from hai_backend.scheduler.queue.queue import Waiting
from hai_backend.scheduler.queue.rating import level_name
from hai_backend.scheduler.quota import UNIT, Limit
from hai_backend.scheduler.row_check import not_yet, wanted

if TYPE_CHECKING:
    from hai_backend.scheduler.cycle.cycle import Cycle

_HOPELESS = (WaitReason.QUOTA_EXCEEDED, WaitReason.SHARE_EXCEEDED)
_COMPETES = (WaitReason.NOT_ENOUGH_NODES, WaitReason.WAITING_FOR_PREEMPTED)


def all_waits(seating: Cycle) -> Iterator[Wait]:
    """One Wait for each task of the group that was not started: first who stands aside, then the queue in order.

    Only tasks that compete for nodes have places before others.
    """
    yield from _aside(seating)
    head: list[int] = []
    before = 0
    for waiting in seating.in_order():
        if waiting.task.id in seating.started:
            continue
        why, text = seating.sentences.of(waiting)
        ranked = why not in _HOPELESS
        place, ahead = (before + 1, tuple(head)) if ranked else (0, ())
        yield Wait(waiting.task.id, why, text, place, waiting.level, ahead)
        if why in _COMPETES:
            before += 1
            if len(head) < seating.group.policy.ahead_limit:
                head.append(waiting.task.id)


def brief(seating: Cycle, task: int) -> Wait | None:
    """The reason alone, without looking at anybody else."""
    waiting = seating.group.waiting.get(task)
    if waiting is None or not _feasible(seating, waiting):
        return _set_aside(seating, task)
    if task in seating.started:
        return None
    why, text = seating.sentences.of(waiting)
    return Wait(task, why, text, priority=waiting.level)


def _set_aside(seating: Cycle, task: int) -> Wait | None:
    waiting, late = seating.group.waiting.get(task), seating.group.aside.get(task)
    known = waiting.task if waiting else late
    verdict = None
    if waiting is not None:
        verdict = seating.group.feasible.verdict(waiting.need)
    elif late is not None:
        verdict = not_yet(late, seating.now)
    return Wait(task, *verdict, priority=known.priority) if known and verdict else None


def _aside(seating: Cycle) -> Iterator[Wait]:
    group = seating.group
    barred = (task for task, waiting in group.waiting.items() if not _feasible(seating, waiting))
    for task in sorted([*group.aside, *barred]):
        if (wait := _set_aside(seating, task)) is not None:
            yield wait


def _feasible(seating: Cycle, waiting: Waiting) -> bool:
    return seating.group.feasible.verdict(waiting.need) is None


class Sentences:
    """Of one pass: written once for all tasks that share them, for each is counted over all nodes."""

    def __init__(self, seating: Cycle) -> None:
        self._cycle = seating
        self._texts: dict[tuple[Need, Priority], str] = {}
        self._lower: dict[tuple[Kind, Priority], int] = {}

    def of(self, waiting: Waiting) -> tuple[WaitReason, str]:
        group, need, level = self._cycle.group, waiting.need, waiting.level
        promise = self._cycle.promised.get(waiting.task.id)
        if promise is not None:
            return WaitReason.WAITING_FOR_PREEMPTED, promise
        limits = group.quotas.limits(*waiting.account)
        if limits and not quota.has_room(limits, need.units):
            return out_of_quota(limits, waiting, group.name)
        if row := group.shares.exceeded(waiting):
            return out_of_share(row, group.shares.held(row.name), waiting)
        text = self._texts.get((need, level))
        if text is None:
            lower = self._below(need, level)
            text = not_enough(group.pool, need, level, group.name, lower)
            self._texts[need, level] = text
        return WaitReason.NOT_ENOUGH_NODES, text

    def _below(self, need: Need, level: Priority) -> int:
        """How many of its nodes are held below a level: each kind of them is counted once."""
        pool = self._cycle.group.pool
        if need.only:
            return _held_below(pool.spots_for(need), level)
        kinds = pool.kinds_for(need)
        for kind in kinds:
            if (kind, level) not in self._lower:
                self._lower[kind, level] = _held_below(kind.spots, level)
        return sum(self._lower[kind, level] for kind in kinds)


def not_enough(pool: Pool, need: Need, level: Priority, group: str, lower: int) -> str:
    """Which nodes there are and who keeps them, once the pass is over; `lower`: how many those below the level."""
    name, empty = level_name(level), pool.count(need, Grip.EMPTY)
    leaving = pool.count(need, Grip.LEAVING) - empty
    all_of_them = pool.count(need, Grip.HELD)
    where = f"{group}#{need.zone}" if need.zone else group
    enough = need.whole and empty + leaving + lower >= need.count
    but = "not to be taken now" if enough else "too few"
    kept = {
        "free": empty,
        "being left": leaving,
        f"held below {name} but {but}": lower,
        f"held at {name} or above or promised": all_of_them - empty - leaving - lower,
    }
    found = ", ".join(f"{count} {how}" for how, count in kept.items() if count)
    text = f"needs {wanted(need)}; of {all_of_them} that suit in {where}, {found}"
    if need.whole:
        return text
    return f"{text}, with room for {within(pool, need, Grip.EMPTY)} of {need.count} now"


def _held_below(spots: Iterable[Slot], level: Priority) -> int:
    return sum(spot.grip is Grip.HELD and _below(spot, level) for spot in spots)


def _below(spot: Slot, level: Priority) -> bool:
    return all(
        holder.grip is Grip.LEAVING or (holder.worth is not None and holder.worth.level < level)
        for holder in spot.holders
    )


def out_of_quota(limits: Iterable[Limit], waiting: Waiting, group: str) -> tuple[WaitReason, str]:
    """The first limit that a task breaks: for now, or for ever."""
    units = waiting.need.units
    limit = min(limits, key=lambda limit: (limit.allowed >= units, limit.room))
    row = "in total" if limit.row is Priority.AUTO else f"at {limit.row.name}"
    text = (
        f"needs {counted(units / UNIT, 'node')}; {waiting.task.user} may hold {_nodes(limit.allowed)} {row} "
        f"in {group} and holds {_nodes(limit.held)}"
    )
    exceeded = limit.allowed < units
    return (WaitReason.QUOTA_EXCEEDED if exceeded else WaitReason.OUT_OF_QUOTA), text


def out_of_share(row: ShareRow, held: int, waiting: Waiting) -> tuple[WaitReason, str]:
    """The limit of its user group, for now or for ever."""
    assert row.limit is not None  # it is broken
    text = (
        f"needs {counted(waiting.need.units / UNIT, 'node')}; user group {row.name} may hold {row.limit} "
        f"in {row.group} and holds {_nodes(held)}"
    )
    exceeded = row.limit * UNIT < waiting.need.units
    return (WaitReason.SHARE_EXCEEDED if exceeded else WaitReason.OUT_OF_SHARE), text


def handed_over(spots: Iterable[Slot], waiting: Waiting) -> str:
    """Which tasks are leaving the nodes that are promised to a newcomer."""
    leaving = {h.task.id for spot in spots for h in spot.holders if h.grip is Grip.LEAVING}
    names = ", ".join(str(task) for task in sorted(leaving)[:10])
    more = f" and {len(leaving) - 10} more" if len(leaving) > 10 else ""
    return f"{wanted(waiting.need)} promised; starts when task {names}{more} has left"


def _nodes(units: int) -> str:
    return shown(units / UNIT)
