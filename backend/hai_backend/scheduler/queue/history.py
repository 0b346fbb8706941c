"""How long do tasks like this one run? Learned from those that ended; nothing is known beforehand.

Run time is cut into bins, each 1.3 times as long as the one before. For a kind of task (user, name, size) a bin has a
hazard: the share of those that reached it which ended in it. Kinds with few endings lean on coarser kinds (name and
size, size, everybody), and all of them on a prior under which a task that has run for t has even odds to end before 4 t
(a heavy tail, as all published traces have). Hazards of kinds are mixed bin by bin, so a kind may know much about its
first minutes and nothing about its days.

Names come and go, so beyond a number the kinds go that ended longest ago. Those with few endings, of which nothing is
known, stand apart: a sweep of thousands of names that nobody uses again takes no place of others.

From the hazards follows the index of Gittins (1979): the best odds of ending per second spent, over all ways to go on
for some while. Serving the highest index first minimises the mean time in the system when durations are unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from math import inf
from operator import add, mul, sub, truediv

Like = tuple[str, str, int, int]
"""What tasks that are alike have in common: user, name, ranks, GPUs of each rank."""

Kind = tuple[str | int, ...]
"""A `Like`, or what is left of it without the user, then without the name; empty: everybody."""

FIRST, RATIO, BINS = 30.0, 1.3, 50
STARTS: tuple[float, ...] = (0.0, *(FIRST * RATIO**i for i in range(BINS - 1)))
"""Where each bin begins, in seconds; the last one, from 103 days on, has no end."""

_WIDTHS = tuple(b - a for a, b in zip(STARTS, (*STARTS[1:], 5 * STARTS[-1]), strict=True))
_HALVES = tuple(width / 2 for width in _WIDTHS)
_WEIGHT = 10.0  # what a coarser kind counts for, in endings
_FEW = 3  # endings; of a kind with fewer nothing is known
_KINDS = 10_000  # that are remembered, as many of few endings, and curves of as many


def bin_of(seconds: float) -> int:
    """The bin in which a task is that has run for so long."""
    return bisect_right(STARTS, seconds) - 1


@dataclass(slots=True)
class _Counts:
    """Of one kind: how many ended in each bin, and in all."""

    ended: list[int]
    total: int = 0
    drawn: int = 0  # how many of them the curve tells of


@dataclass(frozen=True, slots=True)
class Curve:
    """What is expected of a kind of task, per bin."""

    hazards: tuple[float, ...]
    beyond: tuple[float, ...]  # the share that gets beyond the end of the bin
    kind: Kind  # the finest that is known
    endings: int  # known of that kind
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
    """The endings seen so far. Curves are remembered, so that they change at known moments: at once by `refresh`, or a
    few at a time by `outdate` and then `renew`.
    """

    def __init__(self) -> None:
        # what ended last, or was asked for last, stands last; curves of coarser kinds stand first
        self._known: OrderedDict[Kind, _Counts] = OrderedDict()
        self._little_known: OrderedDict[Kind, _Counts] = OrderedDict()
        self._curves: OrderedDict[Kind, Curve] = OrderedDict()
        self._outdated: list[Kind] = []  # coarse ones last
        self.unread = 0  # endings since the last refresh

    def learn(self, like: Like, seconds: float) -> None:
        """A task like this has ended after so many seconds on nodes."""
        self.unread += 1
        for kind in _chain(like):
            self._count(kind, bin_of(seconds))

    def _count(self, kind: Kind, last: int) -> None:
        counts = self._known.get(kind) or self._little_known.pop(kind, None) or _Counts([0] * BINS)
        counts.total += 1
        counts.ended[last] += 1
        _put_last(self._little_known if counts.total < _FEW else self._known, kind, counts)

    def refresh(self) -> None:
        """From now on curves tell of what was learned; those that would change little (under a tenth is new) stay."""
        self.outdate()
        self.renew(len(self._outdated))

    def outdate(self) -> None:
        """Note which curves `refresh` would change, beside those that wait for it already."""
        new = {kind for kind, counts in self._known.items() if counts.total > 1.1 * counts.drawn}
        new.update(self._outdated)
        old = [kind for kind in self._curves if not new.isdisjoint(_chain(kind))]
        self._outdated = sorted(old, key=len, reverse=True)
        self.unread = 0

    def renew(self, most: int) -> bool:
        """Draw some of the outdated curves anew, coarse ones first; False when there were none."""
        first = max(0, len(self._outdated) - most)
        some = self._outdated[first:]
        del self._outdated[first:]
        for kind in reversed(some):
            self._remember(kind, self._draw(kind))
        return bool(some)

    def curve(self, kind: Kind) -> Curve:
        """What was expected of such tasks at the last refresh; of a kind never seen, what holds for a coarser one."""
        found = self._curves.get(kind)
        if found is None:
            found = self._draw(kind)
        self._remember(kind, found)
        return found

    def _remember(self, kind: Kind, curve: Curve) -> None:
        """Those of coarser kinds go first: they are soon found again."""
        self._curves[kind] = curve
        self._curves.move_to_end(kind, last=curve.kind == kind)
        if len(self._curves) > _KINDS:
            self._curves.popitem(last=False)

    def _draw(self, kind: Kind) -> Curve:
        coarser = self.curve(_coarser(kind)) if kind else _PRIOR
        counts = self._known.get(kind)
        if counts is None:
            return coarser
        counts.drawn = counts.total
        return _mixed(kind, counts, coarser)


def _put_last(known: OrderedDict[Kind, _Counts], kind: Kind, counts: _Counts) -> None:
    """Beyond `_KINDS` the first one goes."""
    known[kind] = counts
    known.move_to_end(kind)
    if len(known) > _KINDS:
        known.popitem(last=False)


def _chain(kind: Kind) -> tuple[Kind, ...]:
    """A kind and all coarser ones."""
    return (kind, *_chain(_coarser(kind))) if kind else ((),)


def _coarser(kind: Kind) -> Kind:
    return kind[1:] if len(kind) > 2 else ()


def _mixed(kind: Kind, counts: _Counts, coarser: Curve) -> Curve:
    hazards, reached = [], counts.total
    for ended, hazard in zip(counts.ended, coarser.hazards, strict=True):
        hazards.append(min(0.999999, (ended + _WEIGHT * hazard) / (reached + _WEIGHT)))
        reached -= ended
    return _curve(hazards, kind, counts.total)


def _curve(hazards: Iterable[float], kind: Kind = (), endings: int = 0) -> Curve:
    given = tuple(hazards)
    beyond = accumulate((1 - hazard for hazard in given), mul)
    return Curve(given, tuple(beyond), kind, endings)


_PRIOR = _curve([1 - RATIO**-0.5] * BINS)
