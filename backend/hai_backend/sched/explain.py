"""Why not, how far back, and whom it waits for: a sentence with numbers for every task that stays in the queue.

Sentences are written once for all tasks that share them, and the first tasks of a queue are one tuple that all share:
explaining a hundred thousand waiting tasks costs little more than naming them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from hai_backend.domain.plan import Wait, WaitReason
from hai_backend.domain.priority import Priority
from hai_backend.sched.check import wanted
from hai_backend.sched.fit import slots
from hai_backend.sched.order import Waiting
from hai_backend.sched.pool import EMPTY, LEAVING, Need, Pool, Spot
from hai_backend.sched.quota import UNIT, Limit

_COMPETES = (WaitReason.NOT_ENOUGH_NODES, WaitReason.WAITING_FOR_PREEMPTED)


def waits(blocked: Sequence[Waiting], pool: Pool, group: str, ahead_limit: int) -> Iterator[Wait]:
    """One Wait for each blocked task of a group, in order. Only tasks that compete for nodes count as ahead."""
    head = tuple(islice((w.task.id for w in blocked if w.why in _COMPETES), ahead_limit))
    heads = [head[:number] for number in range(len(head) + 1)]
    texts: dict[tuple[Need, Priority], str] = {}
    before = 0
    for waiting in blocked:
        need, level, why = waiting.need, waiting.level, waiting.why
        text = waiting.message or texts.get((need, level))
        if text is None:
            text = texts[need, level] = not_enough(pool, need, level, group)
        if why is WaitReason.QUOTA_EXCEEDED:
            yield Wait(waiting.task.id, why, text, priority=level)
        else:
            ahead = heads[min(before, len(head))]
            yield Wait(waiting.task.id, why, text, before + 1, level, ahead)
        before += why in _COMPETES


def not_enough(pool: Pool, need: Need, level: Priority, group: str) -> str:
    """Which nodes there are and who keeps them, once the pass is over."""
    empty = pool.count(need, EMPTY)
    leaving = pool.count(need, LEAVING) - empty
    lower = pool.count(need, level - 1) - leaving - empty
    rest = len(pool.spots_for(need)) - empty - leaving - lower
    where = f"{group}#{need.zone}" if need.zone else group
    room = "" if need.whole else f", with room for {sum(_now(pool, need))} of {need.count} now"
    return (
        f"needs {wanted(need)}; of those that suit in {where}, {empty} free, {leaving} being left, "
        f"{lower} held below {level.name} but too few, {rest} held at {level.name} or above or promised{room}"
    )


def out_of_quota(limits: Iterable[Limit], waiting: Waiting, group: str) -> tuple[WaitReason, str]:
    """The first limit that a task breaks: for now, or for ever."""
    units = waiting.need.units
    limit = min(limits, key=lambda limit: (limit.allowed >= units, limit.room))
    row = "in total" if limit.row is Priority.AUTO else f"at {limit.row.name}"
    text = (
        f"needs {_nodes(units)} nodes; {waiting.task.user} may hold {_nodes(limit.allowed)} {row} "
        f"in {group} and holds {_nodes(limit.held)}"
    )
    exceeded = limit.allowed < units
    return (WaitReason.QUOTA_EXCEEDED if exceeded else WaitReason.OUT_OF_QUOTA), text


def handed_over(spots: Iterable[Spot], waiting: Waiting) -> str:
    """Which tasks are leaving the nodes that are promised to a newcomer."""
    leaving = {h.task for spot in spots for h in spot.holders if h.level == LEAVING}
    names = ", ".join(str(task) for task in sorted(leaving)[:10])
    more = f" and {len(leaving) - 10} more" if len(leaving) > 10 else ""
    return f"{wanted(waiting.need)} promised; starts when task {names}{more} has left"


def _now(pool: Pool, need: Need) -> Iterator[int]:
    return (slots(spot, need, EMPTY) for spot in pool.spots_for(need))


def _nodes(units: int) -> str:
    return f"{units / UNIT:.4g}"
