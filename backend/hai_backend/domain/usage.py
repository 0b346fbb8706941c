"""Resource usage of ranks and load of node groups over time, aggregated into buckets.

A bucket stores sums, counts and maxima instead of means, so that buckets can be merged exactly and in any order. LEVELS
says how long buckets of each length are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Level:
    """Buckets of one length. If `keep_seconds` is None, they are kept forever."""

    seconds: int
    keep_seconds: int | None


LEVELS = (Level(60, 3 * 3600), Level(600, 3 * 24 * 3600), Level(2 * 3600, None))
"""The shortest buckets first. Each length is a multiple of the one before."""

MINUTE = LEVELS[0].seconds

_MOST_CPUS = 1e6
_MOST_BYTES = float(1 << 60)


class Use(NamedTuple):  # not a dataclass: a server makes two for every heartbeat
    """Usage of one rank: maxima, and sums of `beats` measurements. GPU values are sums of `gpu_beats` measurements."""

    beats: int
    cpus: float
    cpus_max: float
    memory_bytes: float
    memory_bytes_max: float
    gpu_beats: int = 0
    gpu_utilisation: float = 0.0
    gpu_utilisation_max: float = 0.0
    gpu_memory_bytes: float = 0.0
    gpu_memory_bytes_max: float = 0.0


class Load(NamedTuple):
    """Load of one node group: sums over `minutes`. `gpu_utilisation` is the sum over `gpus_measured` GPUs."""

    minutes: int
    nodes: float
    busy_nodes: float
    gpus: float
    booked_gpus: float
    waiting_tasks: float
    gpus_measured: float = 0.0
    gpu_utilisation: float = 0.0


@dataclass(frozen=True, slots=True)
class RankUse:
    """A bucket of a rank. `start` is in seconds since the epoch."""

    task_id: int
    run: int
    rank: int
    start: int
    use: Use


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """A bucket of a node group."""

    group: str
    start: int
    load: Load


@dataclass(frozen=True, slots=True)
class Minutes:
    """Completed minutes to store. `until` is the start of the current minute."""

    until: int
    ranks: Sequence[RankUse]
    groups: Sequence[GroupLoad] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """A query for steps from `start` to `end`. It reads buckets of `level`, and finer ones where these are
    incomplete.
    """

    level: int
    step: int
    start: int
    end: int


def read_measurement(
    cpus: float, memory_bytes: int, gpu_utilisation: float | None, gpu_memory_bytes: int
) -> Use | None:
    """Return one measurement of an agent, or None if its values are invalid."""
    memory, gpu = float(memory_bytes), gpu_utilisation or 0.0
    gpu_memory = float(gpu_memory_bytes)
    sound = 0 <= cpus <= _MOST_CPUS and 0 <= gpu <= 1
    if not (sound and 0 <= memory <= _MOST_BYTES and 0 <= gpu_memory <= _MOST_BYTES):
        return None
    if gpu_utilisation is None:
        return Use(1, cpus, cpus, memory, memory)
    return Use(1, cpus, cpus, memory, memory, 1, gpu, gpu, gpu_memory, gpu_memory)


def merge_uses(one: Use, other: Use) -> Use:
    """Return the sum of two usages."""
    return Use(
        one.beats + other.beats,
        one.cpus + other.cpus,
        max(one.cpus_max, other.cpus_max),
        one.memory_bytes + other.memory_bytes,
        max(one.memory_bytes_max, other.memory_bytes_max),
        one.gpu_beats + other.gpu_beats,
        one.gpu_utilisation + other.gpu_utilisation,
        max(one.gpu_utilisation_max, other.gpu_utilisation_max),
        one.gpu_memory_bytes + other.gpu_memory_bytes,
        max(one.gpu_memory_bytes_max, other.gpu_memory_bytes_max),
    )


def merge_loads(one: Load, other: Load) -> Load:
    """Return the sum of two loads of one group."""
    return Load._make(mine + theirs for mine, theirs in zip(one, other, strict=True))


def bucket_start(time: float, seconds: int) -> int:
    """Return the start of the bucket of this length that contains a time."""
    return math.floor(time / seconds) * seconds


def plan_window(start: float, end: float, points: int, now: float) -> Window:
    """Return a query with at most `points` steps (two or more), from the finest suitable buckets that still exist."""
    step_seconds = max(end - start, 1.0) / (
        points - 1
    )  # one step more, because the query begins at the start of a step
    level = max(_finest_level_for(now - start), _coarsest_level_for(step_seconds))
    seconds = LEVELS[level].seconds
    step = seconds * math.ceil(step_seconds / seconds)
    return Window(level, step, bucket_start(start, step), math.ceil(end / step) * step)


def split_by_level(query: Window, done: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (level, start, end) of the buckets to read; `done` says until when each level is complete."""
    start = query.start
    for level in range(query.level, -1, -1):
        if start < query.end:
            yield level, start, query.end
        start = max(start, done[level])


def _finest_level_for(age: float) -> int:
    """Return the finest level that is kept for so long. Its first bucket may be missing."""
    for index, level in enumerate(LEVELS):
        if level.keep_seconds is None or age <= level.keep_seconds + level.seconds:
            return index
    raise AssertionError("the last level is kept for good")


def _coarsest_level_for(step_seconds: float) -> int:
    return max((i for i, level in enumerate(LEVELS) if level.seconds <= step_seconds), default=0)


def merge_rank_buckets(buckets: Iterable[RankUse], step: int) -> list[RankUse]:
    """Merge buckets into steps, by rank, run and time."""
    found: dict[tuple[int, int, int, int], RankUse] = {}
    for one in buckets:
        start = bucket_start(one.start, step)
        key = (one.rank, one.run, start, one.task_id)
        earlier = found.get(key)
        use = one.use if earlier is None else merge_uses(earlier.use, one.use)
        found[key] = RankUse(one.task_id, one.run, one.rank, start, use)
    return [found[key] for key in sorted(found)]


def merge_group_buckets(buckets: Iterable[GroupLoad], step: int) -> list[GroupLoad]:
    """Merge buckets into steps, by group and time."""
    found: dict[tuple[str, int], GroupLoad] = {}
    for one in buckets:
        key = (one.group, bucket_start(one.start, step))
        earlier = found.get(key)
        load = one.load if earlier is None else merge_loads(earlier.load, one.load)
        found[key] = GroupLoad(*key, load)
    return [found[key] for key in sorted(found)]
