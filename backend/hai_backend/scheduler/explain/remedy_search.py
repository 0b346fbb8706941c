"""Finds remedies: the smallest changes after which the next pass would start a queued task or promise it nodes.

Each change is tried by making that pass. The next smaller change is tried too, and must not suffice. A search doubles
the change until it suffices and then bisects, so the number of passes grows with the logarithm of the change. The
number of passes is also limited.
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
from hai_backend.scheduler.capacity.requests import UNIT
from hai_backend.scheduler.explain.remedy import (
    Cause,
    Change,
    Remedy,
    apply_remedy,
    candidate_nodes,
    find_task,
)
from hai_backend.scheduler.explain.remedy_times import list_remedy_times
from hai_backend.scheduler.explain.trial_pass import (
    TrialPass,
    run_next_pass,
    run_pass,
    select_group,
)
from hai_backend.scheduler.policy.policy import Policy

_MAX_STEPS = 64  # wake-ups that are tried between two known times
_MIN_PASSES, _MAX_PASSES = 24, 120
_MIN_NODES = 16  # up to which more nodes are always tried
_EFFORT = 60_000  # tasks and nodes, summed over all passes

Try = Callable[[int], Remedy]

_NODES = frozenset(
    {WaitReason.NOT_ENOUGH_NODES, WaitReason.NODES_UNUSABLE, WaitReason.GROUP_TOO_SMALL}
)
_QUOTA = frozenset({WaitReason.OUT_OF_QUOTA, WaitReason.QUOTA_EXCEEDED})
_SHARE = frozenset({WaitReason.OUT_OF_SHARE, WaitReason.SHARE_EXCEEDED})
_DEFERRED = frozenset({WaitReason.HELD, WaitReason.BACKING_OFF})
_TIMELESS = frozenset({WaitReason.HELD, WaitReason.AFTER})  # do not end at a known time


class _NoPassesLeft(Exception):
    """The search has made as many passes as it may."""


def find_remedies(
    snapshot: Snapshot, task: int, policy: Policy, may_continue: Callable[[], bool] = lambda: True
) -> tuple[Remedy, ...]:
    """Return changes of which each alone suffices; none if the task does not wait.

    Changes that the user of the task can make come first. `may_continue` is called before each pass, because a pass
    takes a second if the queue is long.
    """
    group = next((t.group for t in snapshot.tasks if t.id == task), None)
    if group is None:
        return ()
    relevant = select_group(snapshot, group)
    search = _Search(relevant, task, policy, _passes(relevant), may_continue)
    found: list[Remedy] = []
    with suppress(_NoPassesLeft):
        for remedy in search.all():
            found.append(remedy)  # noqa: PERF402 - keeps the remedies found before the exception
    return tuple(found)


def _passes(snapshot: Snapshot) -> int:
    """Return how many passes may be made, so that they take a few seconds of one core at most."""
    return max(
        _MIN_PASSES, min(_MAX_PASSES, _EFFORT // (1 + len(snapshot.tasks) + len(snapshot.nodes)))
    )


class _Search:
    """The search for remedies of one task."""

    def __init__(
        self,
        snapshot: Snapshot,
        task: int,
        policy: Policy,
        most: int,
        may_continue: Callable[[], bool],
    ) -> None:
        self._snapshot = snapshot
        self._may_continue = may_continue
        self._task = find_task(snapshot, task)
        self._server_policy = policy
        self._passes_left = most
        self._current = run_pass(snapshot, task, policy)

    def all(self) -> Iterator[Remedy]:
        """Yield all remedies, first those that the task's user can make."""
        wait, cycle = self._current.wait, self._current.cycle
        if wait is None or cycle is None or self._current.got_nodes:
            return
        self._group = cycle.group
        if wait.why in _QUOTA | _SHARE | _NODES:
            yield from chain(self._fewer(), self._level())
        if wait.why in _QUOTA:
            yield from self._quota()
        if wait.why in _SHARE:
            yield from self._least(_limit, self._group_demand())
        if wait.why in _DEFERRED:
            yield from self._verified(Remedy(Change.RESUME))
        if wait.why in _NODES:
            yield from chain(self._uncordon(), self._more_nodes())
        if wait.why not in _TIMELESS:
            yield from self._time()

    def _try(self, remedy: Remedy) -> TrialPass:
        """Make a pass with the remedy applied. Raises _NoPassesLeft."""
        if self._passes_left <= 0 or not self._may_continue():
            raise _NoPassesLeft
        self._passes_left -= 1
        snapshot = apply_remedy(self._snapshot, self._task.id, remedy, self._group.policy)
        return run_pass(snapshot, self._task.id, self._server_policy)

    def _works(self, remedy: Remedy) -> bool:
        return self._try(remedy).got_nodes

    def _verified(self, remedy: Remedy) -> Iterator[Remedy]:
        """Yield the remedy if it suffices, with `starts` set."""
        found = self._try(remedy)
        if found.got_nodes:
            yield replace(remedy, starts=found.start is not None)

    def _least(self, change: Try, most: int) -> Iterator[Remedy]:
        """Yield the change with the smallest number from 1 to `most` that suffices."""
        if most < 1 or not self._works(change(most)):
            return
        number = _smallest(lambda n: n == most or self._works(change(n)), most)
        yield from self._verified(change(number))

    def _fewer(self) -> Iterator[Remedy]:
        """Yield the most nodes below the requested number with which the task gets nodes."""
        requested = self._task.node_count
        if not self._task.assigned_nodes:
            yield from self._least(
                lambda n: Remedy(Change.FEWER_NODES, count=requested - n), requested - 1
            )

    def _level(self) -> Iterator[Remedy]:
        """Yield the lowest level that suffices."""
        for level in sorted(LEVELS):
            if level is not self._task.priority:
                for remedy in self._verified(Remedy(Change.LEVEL, level=level)):
                    yield remedy
                    return

    def _quota(self) -> Iterator[Remedy]:
        """Yield the fewest nodes to add to each row that is exceeded.

        The row of the level is searched before the row of the total.
        """
        entry = self._current.entry
        assert entry is not None  # a task that lacks quota is in the queue
        limits = self._group.quotas.limits(*entry.account)
        rows = [limit.row for limit in limits if limit.available < entry.request.units]
        most = self._user_demand()
        more: dict[Priority, int] = dict.fromkeys(rows, most)
        for row in rows:
            found = list(self._least(lambda n, row=row: _quota_remedy({**more, row: n}), most))  # type: ignore[misc]
            if not found:
                return
            more[row] = dict(found[0].rows)[row]
        smaller = (_quota_remedy({**more, row: n - 1}) for row, n in more.items())
        if not any(map(self._works, smaller)):
            yield from self._verified(_quota_remedy(more))

    def _user_demand(self) -> int:
        return self._demand({self._task.user})

    def _group_demand(self) -> int:
        shares, users = self._group.shares, {task.user for task in self._snapshot.tasks}
        return self._demand(
            {u for u in users if shares.share_of(u) == shares.share_of(self._task.user)}
        )

    def _demand(self, users: Collection[str]) -> int:
        """Return the most nodes that the users' tasks can use."""
        entry, allocations = self._group.entries.values(), self._group.allocations.values()
        units = sum(w.request.units for w in entry if w.task.user in users)
        used = sum(a.units for a in allocations if a.task.user in users)
        return -(-(units + used) // UNIT)

    def _uncordon(self) -> Iterator[Remedy]:
        """Yield the fewest nodes to uncordon: empty nodes first, or occupied nodes first if fewer of them suffice."""
        occupied = {name for task in self._snapshot.tasks for name in task.placed}
        found = [
            n for n in candidate_nodes(self._snapshot, self._task) if self._usable_by_task(n.name)
        ]
        ready = [n.name for n in found if n.can_be_opened]
        names = sorted(ready, key=lambda name: (name in occupied, name))
        orders = [names] if occupied.isdisjoint(names) else [names, names[::-1]]
        chosen = [remedy.nodes for order in orders for remedy in self._first_of(order)]
        if chosen:
            yield from self._verified(_uncordon(self._drop_unneeded(min(chosen, key=len))))

    def _first_of(self, names: list[str]) -> Iterator[Remedy]:
        """Yield the fewest nodes, from the start of the list, that suffice if they are uncordoned."""
        return self._least(lambda n: _uncordon(names[:n]), len(names))

    def _drop_unneeded(self, names: tuple[str, ...]) -> list[str]:
        """Return the nodes without which the others do not suffice."""
        needed = list(names)
        for name in names if len(names) > 1 else ():
            fewer = [other for other in needed if other != name]
            if self._works(_uncordon(fewer)):
                needed = fewer
        return needed

    def _usable_by_task(self, name: str) -> bool:
        return not self._task.assigned_nodes or name in self._task.assigned_nodes

    def _more_nodes(self) -> Iterator[Remedy]:
        """Yield the fewest nodes to add to the group, up to a limit.

        A cluster hardly grows by more nodes before the task gets its turn anyway.
        """
        most = max(_MIN_NODES, 4 * self._task.node_count)
        if not self._task.assigned_nodes and candidate_nodes(self._snapshot, self._task):
            yield from self._least(lambda n: Remedy(Change.MORE_NODES, count=n), most)

    def _time(self) -> Iterator[Remedy]:
        """Yield the first known time that suffices, or an earlier wake-up that suffices."""
        changes = list_remedy_times(self._task, self._group, self._snapshot.now)
        at = self._first(list(changes)) if changes else None
        if at is None or self._works(_at(nextafter(at, -inf))):
            return
        cause, task = changes.get(at, (Cause.RANK, 0))
        yield from self._verified(replace(_at(at), cause=cause, task=task))

    def _first(self, times: list[float]) -> float | None:
        """Return a time that suffices while the time before it does not."""
        tried = list(_doubling(len(times)))
        for before, index in zip([0, *tried], tried, strict=False):
            if self._works(_at(times[index - 1])):
                number = _between(lambda n: self._works(_at(times[n - 1])), before, index)
                last = times[number - 2] if number > 1 else self._snapshot.now
                return self._earlier(last, times[number - 1])
        return None

    def _earlier(self, last: float, at: float) -> float:
        """Return the first wake-up between `last` and `at` that suffices, else `at`."""
        cache = SchedulerCache.from_snapshot(replace(self._snapshot, now=last), self._server_policy)
        wake_at: float | None = cache.decide(last).wake_at
        for _ in range(_MAX_STEPS):
            if wake_at is None or wake_at >= at:
                return at
            if not self._may_continue():
                raise _NoPassesLeft
            found = run_next_pass(cache, wake_at, self._task.id)
            if found.got_nodes:
                return wake_at
            wake_at = found.plan.wake_at
        return at


def _quota_remedy(more: dict[Priority, int]) -> Remedy:
    return Remedy(Change.QUOTA, rows=tuple(more.items()))


def _limit(more: int) -> Remedy:
    return Remedy(Change.SHARE, count=more)


def _uncordon(names: Iterable[str]) -> Remedy:
    return Remedy(Change.UNCORDON, nodes=tuple(names))


def _at(time: float) -> Remedy:
    return Remedy(Change.TIME, at=time)


def _smallest(works: Callable[[int], bool], most: int) -> int:
    """Return a number that works while the number before it does not. `most` works, 0 does not."""
    before = 0
    for number in _doubling(most):
        if works(number):
            return _between(works, before, number)
        before = number
    return most


def _doubling(most: int) -> Iterator[int]:
    """Yield 1, 3, 7, 15, … and finally `most`."""
    number = 1
    while number < most:
        yield number
        number = 2 * number + 1
    yield most


def _between(works: Callable[[int], bool], fails: int, good: int) -> int:
    """Return the smallest number that works, above one that fails. The search bisects."""
    while good - fails > 1:
        middle = (fails + good) // 2
        if works(middle):
            good = middle
        else:
            fails = middle
    return good
