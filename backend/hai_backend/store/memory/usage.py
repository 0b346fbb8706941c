"""Usage over time in memory. Does the same as sql/usage.py, with the pure functions of domain/usage.py."""

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
    """The buckets of each level. The key of a bucket consists of its start and its rank or group."""

    def __init__(
        self,
        key: Callable[[Bucket], Any],
        fold: Callable[[list[Bucket], int], list[Bucket]],
    ) -> None:
        self._key = key
        self._fold = fold
        self._levels: list[dict[Any, Bucket]] = [{} for _ in LEVELS]

    def add(self, minutes: Iterable[Bucket], until: int) -> None:
        """Insert or replace minutes, then build the coarser levels and delete expired buckets."""
        self._put(0, minutes)
        for level in range(1, len(LEVELS)):
            self._roll_up(level, until)
        for index, level_spec in enumerate(LEVELS):
            oldest = 0 if level_spec.keep_seconds is None else until - level_spec.keep_seconds
            buckets = self._levels[index].items()
            self._levels[index] = {k: b for k, b in buckets if oldest <= b.start < until}

    def query(self, is_selected: Callable[[Bucket], bool], window: Window) -> list[Bucket]:
        complete = [self._complete_until(level) for level in range(len(LEVELS))]
        buckets = [b for part in split_by_level(window, complete) for b in self._between(*part)]
        return self._fold([b for b in buckets if is_selected(b)], window.step)

    def _roll_up(self, level: int, until: int) -> None:
        seconds = LEVELS[level].seconds
        finer = self._between(level - 1, self._complete_until(level), bucket_start(until, seconds))
        self._put(level, self._fold(finer, seconds))

    def _put(self, level: int, buckets: Iterable[Bucket]) -> None:
        self._levels[level].update({(b.start, self._key(b)): b for b in buckets})

    def _between(self, level: int, start: int, end: int) -> list[Bucket]:
        return [b for b in self._levels[level].values() if start <= b.start < end]

    def _complete_until(self, level: int) -> int:
        newest = max((b.start for b in self._levels[level].values()), default=None)
        return 0 if newest is None else newest + LEVELS[level].seconds


class MemoryUsage:
    """Implements `add_usage`, `task_usage` and `group_usage` of store.base.Store."""

    def __init__(self) -> None:
        self._ranks = _Series[RankUse](lambda b: (b.task_id, b.run, b.rank), merge_rank_buckets)
        self._groups = _Series[GroupLoad](lambda b: b.group, merge_group_buckets)

    def add(self, minutes: Minutes) -> None:
        self._ranks.add(minutes.ranks, minutes.until)
        self._groups.add(minutes.groups, minutes.until)

    def task_usage(self, task_id: int, ranks: Collection[int], window: Window) -> list[RankUse]:
        def is_selected(bucket: RankUse) -> bool:
            return bucket.task_id == task_id and (not ranks or bucket.rank in ranks)

        return self._ranks.query(is_selected, window)

    def group_usage(self, group: str, window: Window) -> list[GroupLoad]:
        return self._groups.query(lambda bucket: group in ("", bucket.group), window)
