"""How long tasks of a kind run, learned from tasks that have ended.

Run time is cut into bins, each 1.3 times as long as the one before. For a kind of task (user, name, size) a bin has a
hazard: the share of the tasks that reached it which ended in it. Kinds with few endings rely on coarser kinds (name and
size, size, all tasks), and all of them on a prior under which a task that has run for t has even odds to end before 4 t
(a heavy tail, as in all published traces). Hazards of kinds are mixed bin by bin, so a kind may have much data about
its first minutes and none about its days.

Names come and go, so beyond a limit the kinds are dropped whose last ending is oldest. Kinds with few endings have a
limit of their own: a sweep of thousands of names that are never used again displaces no others.

From the hazards follows the index of Gittins (1979): the best odds of ending per second spent, over all ways to go on
for some while. Serving the highest index first minimises the mean time in the system when durations are unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice, repeat
from math import inf
from operator import add, mul, sub, truediv
from zlib import crc32

Like = tuple[str, str, int, int]
"""What tasks that are alike have in common: user, name, ranks, GPUs of each rank."""

NodeClass = tuple[str | int, ...]
"""A `Like`, or a `Like` without the user, then without the name; empty: all tasks."""

FIRST, RATIO, BINS = 30.0, 1.3, 50
STARTS: tuple[float, ...] = (0.0, *(FIRST * RATIO**i for i in range(BINS - 1)))
"""Where each bin begins, in seconds; the last one, from 103 days on, has no end."""

_WIDTHS = tuple(b - a for a, b in zip(STARTS, (*STARTS[1:], 5 * STARTS[-1]), strict=True))
_HALVES = tuple(width / 2 for width in _WIDTHS)
_WEIGHT = 10.0  # what a coarser kind counts for, in endings
_MIN_ENDINGS = 3  # a kind with fewer is not used
_BATCH = 40  # tasks rated anew in one pass
_MAX_KINDS = 10_000  # as many with few endings, and as many curves


def bin_of(seconds: float) -> int:
    """The bin in which a task is that has run for so long."""
    return bisect_right(STARTS, seconds) - 1


@dataclass(slots=True)
class _Counts:
    """Of one kind: how many ended in each bin, and in all."""

    ended: list[int]
    total: int = 0
    drawn: int = 0  # how many of them the curve includes


@dataclass(frozen=True, slots=True)
class Curve:
    """What is expected of a kind of task, per bin."""

    hazards: tuple[float, ...]
    beyond: tuple[float, ...]  # the share that gets beyond the end of the bin
    kind: NodeClass  # the finest with enough endings
    endings: int  # of that kind
    _indices: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    def index(self, bin: int) -> float:
        """The best odds of ending per second, 1/s, for a task at the start of the bin."""
        found = self._indices.get(bin)
        if found is None:
            found = self._indices[bin] = self._steepest(bin)
        return found

    def _steepest(self, bin: int) -> float:
        """Going on from the bin for some while is a chord in the curve of (seconds spent, share ended); its slope is
        what is won per second.
        """
        alive, beyond = (1.0, *self.beyond)[bin:], self.beyond[bin:]
        ended = map(sub, repeat(alive[0]), beyond)
        spent = accumulate(map(mul, _HALVES[bin:], map(add, alive, beyond)))
        steepest: float = max(map(truediv, ended, spent))
        return steepest

    def remaining(self, age: float, share: float) -> float:
        """Within how many more seconds does this share end of those that have run for `age`?"""
        first = bin_of(age)
        alive = self.beyond[first - 1] if first else 1.0
        through = min(1.0, (age - STARTS[first]) / _WIDTHS[first])
        target = (alive + through * (self.beyond[first] - alive)) * (1 - share)
        for i in range(first, BINS):
            if self.beyond[i] <= target:
                before = self.beyond[i - 1] if i else 1.0
                part = (before - target) / (before - self.beyond[i])
                return max(0.0, STARTS[i] + part * _WIDTHS[i] - age)
        return inf


class History:
    """The endings so far. Curves are cached and change only by `refresh`, or a few at a time by `outdate`, then
    `renew`.
    """

    def __init__(self) -> None:
        # in order of their last ending, or last use; curves of coarser kinds come first
        self._counts: OrderedDict[NodeClass, _Counts] = OrderedDict()
        self._rare_counts: OrderedDict[NodeClass, _Counts] = OrderedDict()
        self._curves: OrderedDict[NodeClass, Curve] = OrderedDict()
        self._outdated: list[NodeClass] = []  # coarse ones last
        self.unread = 0  # endings since the last refresh

    def learn(self, like: Like, seconds: float) -> None:
        """A task like this has ended after so many seconds on nodes."""
        self.unread += 1
        for kind in _chain(like):
            self._count(kind, bin_of(seconds))

    def _count(self, kind: NodeClass, last: int) -> None:
        counts = self._counts.get(kind) or self._rare_counts.pop(kind, None) or _Counts([0] * BINS)
        counts.total += 1
        counts.ended[last] += 1
        _put_last(self._rare_counts if counts.total < _MIN_ENDINGS else self._counts, kind, counts)

    def refresh(self) -> None:
        """Include what was learned in the curves; those that would change little (under a tenth is new) stay."""
        self.outdate()
        self.rebuild(len(self._outdated))

    def outdate(self) -> None:
        """Mark the curves that `refresh` would change, beside those that are marked already."""
        new = {kind for kind, counts in self._counts.items() if counts.total > 1.1 * counts.drawn}
        new.update(self._outdated)
        old = [kind for kind in self._curves if not new.isdisjoint(_chain(kind))]
        self._outdated = sorted(old, key=len, reverse=True)
        self.unread = 0

    def rebuild(self, most: int) -> bool:
        """Compute some of the outdated curves, coarse ones first; False when there were none."""
        first = max(0, len(self._outdated) - most)
        some = self._outdated[first:]
        del self._outdated[first:]
        for kind in reversed(some):
            self._cache(kind, self._compute(kind))
        return bool(some)

    def curve(self, kind: NodeClass) -> Curve:
        """The curve of a kind as of the last refresh; that of a coarser kind, if it has no endings."""
        found = self._curves.get(kind)
        if found is None:
            found = self._compute(kind)
        self._cache(kind, found)
        return found

    def _cache(self, kind: NodeClass, curve: Curve) -> None:
        """Curves that stand for a finer kind are dropped first: they are cheap to find again."""
        self._curves[kind] = curve
        self._curves.move_to_end(kind, last=curve.kind == kind)
        if len(self._curves) > _MAX_KINDS:
            self._curves.popitem(last=False)

    def _compute(self, kind: NodeClass) -> Curve:
        coarser = self.curve(_coarser(kind)) if kind else _PRIOR
        counts = self._counts.get(kind)
        if counts is None:
            return coarser
        counts.drawn = counts.total
        return _mixed(kind, counts, coarser)


def _put_last(
    counts_by_kind: OrderedDict[NodeClass, _Counts], kind: NodeClass, counts: _Counts
) -> None:
    """Beyond `_MAX_KINDS` the first one goes."""
    counts_by_kind[kind] = counts
    counts_by_kind.move_to_end(kind)
    if len(counts_by_kind) > _MAX_KINDS:
        counts_by_kind.popitem(last=False)


def _chain(kind: NodeClass) -> tuple[NodeClass, ...]:
    """A kind and all coarser ones."""
    return (kind, *_chain(_coarser(kind))) if kind else ((),)


def _coarser(kind: NodeClass) -> NodeClass:
    return kind[1:] if len(kind) > 2 else ()


def _mixed(kind: NodeClass, counts: _Counts, coarser: Curve) -> Curve:
    hazards, reached = [], counts.total
    for ended, hazard in zip(counts.ended, coarser.hazards, strict=True):
        hazards.append(min(0.999999, (ended + _WEIGHT * hazard) / (reached + _WEIGHT)))
        reached -= ended
    return _curve(hazards, kind, counts.total)


def _curve(hazards: Iterable[float], kind: NodeClass = (), endings: int = 0) -> Curve:
    hazards = tuple(hazards)
    beyond = accumulate((1 - hazard for hazard in hazards), mul)
    return Curve(hazards, tuple(beyond), kind, endings)


_PRIOR = _curve([1 - RATIO**-0.5] * BINS)


class RatingRefresh:
    """Of one group, about every `seconds`."""

    def __init__(self, group: str, history: History, seconds: float) -> None:
        self._history = history
        self._seconds = seconds * stagger(group)
        self._next = -inf
        # tasks whose ratings are older than the last refresh
        self._pending: Iterator[int] = iter(())
        history.refresh()

    def is_due(self, now: float) -> bool:
        """True while expected run times change."""
        if self._next == -inf:
            self._next = now + self._seconds
        if self._history.unread and now >= self._next:
            self._history.outdate()
            self._next = now + self._seconds
        return self._history.rebuild(_BATCH)

    def start(self, tasks: Iterable[int]) -> None:
        """Rate these tasks anew in the next passes."""
        self._pending = iter(list(tasks))

    def batch(self) -> Iterator[int]:
        """The tasks to rate anew in this pass."""
        return islice(self._pending, _BATCH)


def stagger(group: str) -> float:
    """Factor of the usual interval, so that groups do not all refresh in the same pass."""
    return 0.75 + crc32(group.encode()) % 64 / 128
