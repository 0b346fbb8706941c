"""Series of use in memory: what store/sql/usage.py says in SQL, said with the pure functions of domain/usage.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, TypeVar

from hai_backend.domain.usage import (
    LEVELS,
    GroupLoad,
    Minutes,
    RankUse,
    Window,
    bucket_start,
    merge_group_buckets,
    merge_rank_buckets,
    split_by_level,
)

Bucket = TypeVar("Bucket", bound=RankUse | GroupLoad)


class _Series(Generic[Bucket]):
    """The buckets of each level, by when they begin and whose they are."""

    def __init__(
        self,
        key: Callable[[Bucket], Any],
        fold: Callable[[list[Bucket], int], list[Bucket]],
    ) -> None:
        self._key = key
        self._fold = fold
        self._levels: list[dict[Any, Bucket]] = [{} for _ in LEVELS]

    def add(self, minutes: Iterable[Bucket], until: int) -> None:
        self._put(0, minutes)
        for level in range(1, len(LEVELS)):
            self._roll_up(level, until)
        for index, kind in enumerate(LEVELS):
            oldest = 0 if kind.keep_seconds is None else until - kind.keep_seconds
            kept = self._levels[index].items()
            self._levels[index] = {k: b for k, b in kept if oldest <= b.start < until}

    def ask(self, wanted: Callable[[Bucket], bool], asked: Window) -> list[Bucket]:
        done = [self._complete(level) for level in range(len(LEVELS))]
        found = [
            b for part in split_by_level(asked, done) for b in self._between(*part) if wanted(b)
        ]
        return self._fold(found, asked.step)

    def _roll_up(self, level: int, until: int) -> None:
        seconds = LEVELS[level].seconds
        finer = self._between(level - 1, self._complete(level), bucket_start(until, seconds))
        self._put(level, self._fold(finer, seconds))

    def _put(self, level: int, buckets: Iterable[Bucket]) -> None:
        self._levels[level].update({(b.start, self._key(b)): b for b in buckets})

    def _between(self, level: int, start: int, end: int) -> list[Bucket]:
        return [b for b in self._levels[level].values() if start <= b.start < end]

    def _complete(self, level: int) -> int:
        newest = max((b.start for b in self._levels[level].values()), default=None)
        return 0 if newest is None else newest + LEVELS[level].seconds


class MemoryUsage:
    """See store/base.py for what each verb promises."""

    def __init__(self) -> None:
        self._ranks = _Series[RankUse](
            lambda one: (one.task_id, one.run, one.rank), merge_rank_buckets
        )
        self._groups = _Series[GroupLoad](lambda one: one.group, merge_group_buckets)

    def add(self, minutes: Minutes) -> None:
        self._ranks.add(minutes.ranks, minutes.until)
        self._groups.add(minutes.groups, minutes.until)

    def of_task(self, task_id: int, ranks: Collection[int], asked: Window) -> list[RankUse]:
        def wanted(one: RankUse) -> bool:
            return one.task_id == task_id and (not ranks or one.rank in ranks)

        return self._ranks.ask(wanted, asked)

    def of_groups(self, group: str, asked: Window) -> list[GroupLoad]:
        return self._groups.ask(lambda one: group in ("", one.group), asked)
