"""How long tasks of a kind run, learned from tasks that have ended.

Run time is divided into bins, each 1.3 times as long as the bin before. For a kind of task (user, name, size), the
hazard of a bin is the share of the tasks that reached the bin and ended in it. A kind with few endings relies on
coarser kinds (name and size; size; all tasks). The coarsest relies on a prior under which a task that has run for t
ends before 4 t with probability 1/2 (a heavy tail, as in all published traces). Hazards are mixed bin by bin,
because a kind may have much data about its first minutes and none about its later days.

The number of kinds is limited; the kind with the oldest last ending is dropped first. Kinds with few endings have a
limit of their own, so that thousands of names that are used once do not displace other kinds.

The hazards give the Gittins index (Gittins, 1979): the highest probability of ending per second spent, over all
times for which the task could continue. Running the task with the highest index first minimises the mean time in
the system when durations are unknown.
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

TaskKind = tuple[str, str, int, int]
"""User, name, number of ranks, GPUs of each rank."""

Kind = tuple[str | int, ...]
"""A `TaskKind`, or a `TaskKind` without the user, or without user and name; the empty tuple stands for all tasks."""

FIRST, RATIO, BINS = 30.0, 1.3, 50
STARTS: tuple[float, ...] = (0.0, *(FIRST * RATIO**i for i in range(BINS - 1)))
"""Where each bin begins, in seconds. The last bin begins at 103 days and has no end."""

_WIDTHS = tuple(b - a for a, b in zip(STARTS, (*STARTS[1:], 5 * STARTS[-1]), strict=True))
_HALVES = tuple(width / 2 for width in _WIDTHS)
_WEIGHT = 10.0  # a coarser kind counts as so many endings
_MIN_ENDINGS = 3  # a kind with fewer is not used
_BATCH = 40  # curves or tasks that are updated in one pass
_MAX_KINDS = 10_000  # as many with few endings, and as many curves


def bin_of(seconds: float) -> int:
    """Return the bin of a task that has run for so long."""
    return bisect_right(STARTS, seconds) - 1


@dataclass(slots=True)
class _Counts:
    """How many tasks of one kind have ended, in each bin and in total."""

    ended: list[int]
    total: int = 0
    in_curve: int = 0  # how many of the total the curve includes


@dataclass(frozen=True, slots=True)
class Curve:
    """The expected run time of a kind of task, per bin."""

    hazards: tuple[float, ...]
    beyond: tuple[float, ...]  # the share of tasks that run longer than to the end of the bin
    kind: Kind  # the finest kind with enough endings
    endings: int  # of that kind
    _indices: dict[int, float] = field(default_factory=dict, compare=False, repr=False)

    def index(self, bin: int) -> float:
        """Return the Gittins index in 1/s of a task at the start of the bin."""
        found = self._indices.get(bin)
        if found is None:
            found = self._indices[bin] = self._steepest(bin)
        return found

    def _steepest(self, bin: int) -> float:
        """Return the steepest chord from this bin in the curve of (seconds spent, share of tasks that have ended)."""
        alive, beyond = (1.0, *self.beyond)[bin:], self.beyond[bin:]
        ended = map(sub, repeat(alive[0]), beyond)
        spent = accumulate(map(mul, _HALVES[bin:], map(add, alive, beyond)))
        steepest: float = max(map(truediv, ended, spent))
        return steepest

    def remaining(self, age: float, share: float) -> float:
        """Return within how many more seconds this share of the tasks that have run for `age` seconds ends."""
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
    """The endings so far, and a curve for each kind.

    Curves are cached. `refresh` updates all of them at once; `outdate` and then `rebuild` update a few at a time.
    """

    def __init__(self) -> None:
        # by last ending; curves by last use, curves of coarser kinds first
        self._counts: OrderedDict[Kind, _Counts] = OrderedDict()
        self._rare_counts: OrderedDict[Kind, _Counts] = OrderedDict()
        self._curves: OrderedDict[Kind, Curve] = OrderedDict()
        self._outdated: list[Kind] = []  # the coarsest kinds last
        self.new_endings = 0  # since the last refresh

    def learn(self, task_kind: TaskKind, seconds: float) -> None:
        """Add that a task of this kind has ended after so many seconds on nodes."""
        self.new_endings += 1
        for kind in _with_coarser(task_kind):
            self._count(kind, bin_of(seconds))

    def _count(self, kind: Kind, last: int) -> None:
        """Count an ending in its bin."""
        counts = self._counts.get(kind) or self._rare_counts.pop(kind, None) or _Counts([0] * BINS)
        counts.total += 1
        counts.ended[last] += 1
        _put_last(self._rare_counts if counts.total < _MIN_ENDINGS else self._counts, kind, counts)

    def refresh(self) -> None:
        """Update the curves. A curve stays as it is while less than a tenth of its endings are new."""
        self.outdate()
        self.rebuild(len(self._outdated))

    def outdate(self) -> None:
        """Mark the curves that `refresh` would update, in addition to curves that are marked already."""
        new = {
            kind for kind, counts in self._counts.items() if counts.total > 1.1 * counts.in_curve
        }
        new.update(self._outdated)
        old = [kind for kind in self._curves if not new.isdisjoint(_with_coarser(kind))]
        self._outdated = sorted(old, key=len, reverse=True)
        self.new_endings = 0

    def rebuild(self, most: int) -> bool:
        """Update at most `most` outdated curves, the coarsest first. Return False if there were none."""
        first = max(0, len(self._outdated) - most)
        some = self._outdated[first:]
        del self._outdated[first:]
        for kind in reversed(some):
            self._cache(kind, self._compute(kind))
        return bool(some)

    def curve(self, kind: Kind) -> Curve:
        """Return the curve of a kind as of the last refresh, or that of a coarser kind if it has too few endings."""
        found = self._curves.get(kind)
        if found is None:
            found = self._compute(kind)
        self._cache(kind, found)
        return found

    def _cache(self, kind: Kind, curve: Curve) -> None:
        """Cache a curve. Curves of coarser kinds are dropped first, because they are cheap to find again."""
        self._curves[kind] = curve
        self._curves.move_to_end(kind, last=curve.kind == kind)
        if len(self._curves) > _MAX_KINDS:
            self._curves.popitem(last=False)

    def _compute(self, kind: Kind) -> Curve:
        coarser = self.curve(_coarser(kind)) if kind else _PRIOR
        counts = self._counts.get(kind)
        if counts is None:
            return coarser
        counts.in_curve = counts.total
        return _mixed(kind, counts, coarser)


def _put_last(counts_by_kind: OrderedDict[Kind, _Counts], kind: Kind, counts: _Counts) -> None:
    """Move a kind to the end. Beyond `_MAX_KINDS`, drop the first kind."""
    counts_by_kind[kind] = counts
    counts_by_kind.move_to_end(kind)
    if len(counts_by_kind) > _MAX_KINDS:
        counts_by_kind.popitem(last=False)


def _with_coarser(kind: Kind) -> tuple[Kind, ...]:
    """Return a kind and all coarser kinds."""
    return (kind, *_with_coarser(_coarser(kind))) if kind else ((),)


def _coarser(kind: Kind) -> Kind:
    """Return the next coarser kind."""
    return kind[1:] if len(kind) > 2 else ()


def _mixed(kind: Kind, counts: _Counts, coarser: Curve) -> Curve:
    """Return the curve of a kind: its own hazards, mixed bin by bin with those of the coarser kind."""
    hazards, reached = [], counts.total
    for ended, hazard in zip(counts.ended, coarser.hazards, strict=True):
        hazards.append(min(0.999999, (ended + _WEIGHT * hazard) / (reached + _WEIGHT)))
        reached -= ended
    return _curve(hazards, kind, counts.total)


def _curve(hazards: Iterable[float], kind: Kind = (), endings: int = 0) -> Curve:
    """Return the curve with these hazards."""
    hazards = tuple(hazards)
    beyond = accumulate((1 - hazard for hazard in hazards), mul)
    return Curve(hazards, tuple(beyond), kind, endings)


_PRIOR = _curve([1 - RATIO**-0.5] * BINS)


class HistoryRefresh:
    """Updates the history of a group about every `seconds`, and lists the tasks whose merit may have changed.

    Each pass updates a few curves and then a few tasks, so that no pass is long.
    """

    def __init__(self, group: str, history: History, seconds: float) -> None:
        self._history = history
        self._seconds = seconds * stagger_factor(group)
        self._next = -inf
        self._pending: Iterator[int] = iter(())  # tasks whose merit is older than the last refresh
        history.refresh()

    def is_due(self, now: float) -> bool:
        """Begin an update if it is due, and update a few curves. Return True if curves have changed."""
        if self._next == -inf:
            self._next = now + self._seconds
        if self._history.new_endings and now >= self._next:
            self._history.outdate()
            self._next = now + self._seconds
        return self._history.rebuild(_BATCH)

    def start(self, tasks: Iterable[int]) -> None:
        """Set the tasks whose precedence is updated in the next passes."""
        self._pending = iter(list(tasks))

    def next_tasks(self) -> Iterator[int]:
        """Yield the tasks whose precedence is updated in this pass."""
        return islice(self._pending, _BATCH)


def stagger_factor(group: str) -> float:
    """Return the factor of the interval of a group, so that groups do not all update in the same pass."""
    return 0.75 + crc32(group.encode()) % 64 / 128
