"""The smallest changes after which the very next pass would start a waiting task, or promise it nodes.

Every change is tried by really making that pass, and so is the next smaller one, which must not suffice. Searches
double and then halve, so their number of passes grows with the logarithm of what is asked for, and it is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from math import inf, nextafter

from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.scheduling.plan import WaitReason
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.scheduler.cache import SchedulerCache
from hai_backend.scheduler.explain.counterfactual import (
    Cause,
    Change,
    Flip,
    applied,
    candidates,
    task_of,
)
from hai_backend.scheduler.explain.probe import Probe, look, look_again, part
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.scheduler.quota import UNIT
from hai_backend.scheduler.wakeup_times import moments

_STEPS = 64  # moments between two that are known to matter
_LEAST, _MOST = 24, 120  # passes
_FEW = 16  # nodes
_EFFORT = 60_000  # tasks and nodes that are looked at

Try = Callable[[int], Flip]

_NODES = frozenset(
    {WaitReason.NOT_ENOUGH_NODES, WaitReason.NODES_UNUSABLE, WaitReason.GROUP_TOO_SMALL}
)
_QUOTA = frozenset({WaitReason.OUT_OF_QUOTA, WaitReason.QUOTA_EXCEEDED})
_SHARE = frozenset({WaitReason.OUT_OF_SHARE, WaitReason.SHARE_EXCEEDED})
_ASIDE = frozenset({WaitReason.HELD, WaitReason.BACKING_OFF})
_TIMELESS = frozenset({WaitReason.HELD, WaitReason.AFTER})  # no moment that is known ends these


class _Spent(Exception):
    """No more passes."""


def flips(
    snapshot: Snapshot, task: int, policy: Policy, go_on: Callable[[], bool] = lambda: True
) -> tuple[Flip, ...]:
    """Changes that suffice alone, what its user can do first. Nothing for a task that does not wait.

    `go_on` is asked before each pass: of a long queue one takes a second.
    """
    group = next((t.group for t in snapshot.tasks if t.id == task), None)
    if group is None:
        return ()
    own = part(snapshot, group)
    search = _Search(own, task, policy, _passes(own), go_on)
    found: list[Flip] = []
    with suppress(_Spent):
        for flip in search.all():
            found.append(flip)  # noqa: PERF402 - what was found before the last pass counts
    return tuple(found)


def _passes(own: Snapshot) -> int:
    """How many may be made: a few seconds of one core at most."""
    return max(_LEAST, min(_MOST, _EFFORT // (1 + len(own.tasks) + len(own.nodes))))


class _Search:
    def __init__(
        self, snapshot: Snapshot, task: int, policy: Policy, most: int, go_on: Callable[[], bool]
    ) -> None:
        self._snapshot = snapshot
        self._go_on = go_on
        self._task = task_of(snapshot, task)
        self._server_policy = policy
        self._left = most
        self._now = look(snapshot, task, policy)

    def all(self) -> Iterator[Flip]:
        """In the order of cost: what its user can do first."""
        wait, seating = self._now.wait, self._now.seating
        if wait is None or seating is None or self._now.served:
            return
        self._group = seating.group
        if wait.why in _QUOTA | _SHARE | _NODES:
            yield from chain(self._fewer(), self._level())
        if wait.why in _QUOTA:
            yield from self._quota()
        if wait.why in _SHARE:
            yield from self._least(_limit, self._team_demand())
        if wait.why in _ASIDE:
            yield from self._seen(Flip(Change.RESUME))
        if wait.why in _NODES:
            yield from chain(self._uncordon(), self._more_nodes())
        if wait.why not in _TIMELESS:
            yield from self._time()

    def _look(self, flip: Flip) -> Probe:
        if self._left <= 0 or not self._go_on():
            raise _Spent
        self._left -= 1
        snapshot = applied(self._snapshot, self._task.id, flip, self._group.policy)
        return look(snapshot, self._task.id, self._server_policy)

    def _works(self, flip: Flip) -> bool:
        return self._look(flip).served

    def _seen(self, flip: Flip) -> Iterator[Flip]:
        """The change, if it suffices, with what comes of it."""
        found = self._look(flip)
        if found.served:
            yield replace(flip, starts=found.start is not None)

    def _least(self, change: Try, most: int) -> Iterator[Flip]:
        """The smallest number that suffices, of 1 to `most`."""
        if most < 1 or not self._works(change(most)):
            return
        number = _smallest(lambda n: n == most or self._works(change(n)), most)
        yield from self._seen(change(number))

    def _fewer(self) -> Iterator[Flip]:
        asked = self._task.node_count
        if not self._task.assigned_nodes:
            yield from self._least(lambda n: Flip(Change.FEWER_NODES, count=asked - n), asked - 1)

    def _level(self) -> Iterator[Flip]:
        """The lowest one."""
        for level in sorted(LEVELS):
            if level is not self._task.priority:
                for flip in self._seen(Flip(Change.LEVEL, level=level)):
                    yield flip
                    return

    def _quota(self) -> Iterator[Flip]:
        """More in each row that stands in the way; of two, the row of the level first."""
        waiting = self._now.waiting
        assert waiting is not None  # who lacks quota is in the queue
        limits = self._group.quotas.limits(*waiting.account)
        rows = [limit.row for limit in limits if limit.room < waiting.need.units]
        most = self._own_demand()
        more: dict[Priority, int] = dict.fromkeys(rows, most)
        for row in rows:
            found = list(self._least(lambda n, row=row: _quota_flip({**more, row: n}), most))  # type: ignore[misc]
            if not found:
                return
            more[row] = dict(found[0].rows)[row]
        smaller = (_quota_flip({**more, row: n - 1}) for row, n in more.items())
        if not any(map(self._works, smaller)):
            yield from self._seen(_quota_flip(more))

    def _own_demand(self) -> int:
        return self._demand({self._task.user})

    def _team_demand(self) -> int:
        shares, users = self._group.shares, {task.user for task in self._snapshot.tasks}
        return self._demand({u for u in users if shares.of(u) == shares.of(self._task.user)})

    def _demand(self, users: Collection[str]) -> int:
        """More than this many nodes the users' tasks can not use."""
        waiting, holders = self._group.waiting.values(), self._group.holders.values()
        units = sum(w.need.units for w in waiting if w.task.user in users)
        held = sum(h.units for h in holders if h.task.user in users)
        return -(-(units + held) // UNIT)

    def _uncordon(self) -> Iterator[Flip]:
        """Empty nodes first; or the other way round, when that takes fewer. No part of them suffices."""
        held = {name for task in self._snapshot.tasks for name in task.placed}
        found = [n for n in candidates(self._snapshot, self._task) if self._comes_back(n.name)]
        ready = [n.name for n in found if n.can_be_opened]
        names = sorted(ready, key=lambda name: (name in held, name))
        orders = [names] if held.isdisjoint(names) else [names, names[::-1]]
        chosen = [flip.nodes for order in orders for flip in self._first_of(order)]
        if chosen:
            yield from self._seen(_uncordon(self._without_superfluous(min(chosen, key=len))))

    def _first_of(self, names: list[str]) -> Iterator[Flip]:
        return self._least(lambda n: _uncordon(names[:n]), len(names))

    def _without_superfluous(self, names: tuple[str, ...]) -> list[str]:
        kept = list(names)
        for name in names if len(names) > 1 else ():
            fewer = [other for other in kept if other != name]
            if self._works(_uncordon(fewer)):
                kept = fewer
        return kept

    def _comes_back(self, name: str) -> bool:
        return not self._task.assigned_nodes or name in self._task.assigned_nodes

    def _more_nodes(self) -> Iterator[Flip]:
        """Not many: nobody builds a cluster for one task, and its turn will come before that."""
        most = max(_FEW, 4 * self._task.node_count)
        if not self._task.assigned_nodes and candidates(self._snapshot, self._task):
            yield from self._least(lambda n: Flip(Change.MORE_NODES, count=n), most)

    def _time(self) -> Iterator[Flip]:
        """The first of the moments that are known to matter, or one before it that turns out to."""
        known = moments(self._task, self._group, self._snapshot.now)
        at = self._first(list(known)) if known else None
        if at is None or self._works(_at(nextafter(at, -inf))):
            return
        cause, task = known.get(at, (Cause.RANK, 0))
        yield from self._seen(replace(_at(at), cause=cause, task=task))

    def _first(self, times: list[float]) -> float | None:
        """A moment at which it works, and not at the one before."""
        tried = list(_doubling(len(times)))
        for before, index in zip([0, *tried], tried, strict=False):
            if self._works(_at(times[index - 1])):
                number = _between(lambda n: self._works(_at(times[n - 1])), before, index)
                last = times[number - 2] if number > 1 else self._snapshot.now
                return self._earlier(last, times[number - 1])
        return None

    def _earlier(self, last: float, at: float) -> float:
        """Does something else happen in between?"""
        board = SchedulerCache.of(replace(self._snapshot, now=last), self._server_policy)
        when: float | None = board.decide(last).wake_at
        for _ in range(_STEPS):
            if when is None or when >= at:
                return at
            if not self._go_on():
                raise _Spent
            found = look_again(board, when, self._task.id)
            if found.served:
                return when
            when = found.plan.wake_at
        return at


def _quota_flip(more: dict[Priority, int]) -> Flip:
    return Flip(Change.QUOTA, rows=tuple(more.items()))


def _limit(more: int) -> Flip:
    return Flip(Change.SHARE, count=more)


def _uncordon(names: Iterable[str]) -> Flip:
    return Flip(Change.UNCORDON, nodes=tuple(names))


def _at(moment: float) -> Flip:
    return Flip(Change.TIME, at=moment)


def _smallest(works: Callable[[int], bool], most: int) -> int:
    """A number that works while the one before does not; `most` works, 0 does not."""
    before = 0
    for number in _doubling(most):
        if works(number):
            return _between(works, before, number)
        before = number
    return most


def _doubling(most: int) -> Iterator[int]:
    """1, 3, 7, 15 … and at last `most`."""
    number = 1
    while number < most:
        yield number
        number = 2 * number + 1
    yield most


def _between(works: Callable[[int], bool], fails: int, good: int) -> int:
    while good - fails > 1:
        middle = (fails + good) // 2
        if works(middle):
            good = middle
        else:
            fails = middle
    return good
