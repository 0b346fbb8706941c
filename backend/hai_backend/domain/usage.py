"""What ranks use and how busy groups are, over time: measurements fold into buckets, fine ones into coarse ones.

A bucket keeps sums, counts and maxima, never means: so folding is associative, and a mean of means is a true one.
What is kept of which length is the table LEVELS, as in round-robin databases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Level:
    """Buckets of one length; `keep_seconds` None: for good."""

    seconds: int
    keep_seconds: int | None


LEVELS = (Level(60, 3 * 3600), Level(600, 3 * 24 * 3600), Level(2 * 3600, None))
"""Finest first; each length is a multiple of the one before."""

MINUTE = LEVELS[0].seconds

_MOST_CPUS = 1e6
_MOST_BYTES = float(1 << 60)


class Use(NamedTuple):  # not a dataclass: a server makes two for every heartbeat
    """By one rank: sums over `beats` measurements, of GPUs over the `gpu_beats` that saw any; and maxima."""

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
    """Of one node group: sums over `minutes`. `gpus_measured` are those that `gpu_utilisation` adds up."""

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
    """A bucket of a rank; `start` in seconds since the epoch."""

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
    """What has become over and is to be kept; `until` is where the open minute begins."""

    until: int
    ranks: Sequence[RankUse]
    groups: Sequence[GroupLoad] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """A question: steps from `start` to `end`, of buckets of a level; of finer ones where it is not complete."""

    level: int
    step: int
    start: int
    end: int


def measured(
    cpus: float, memory_bytes: int, gpu_utilisation: float | None, gpu_memory_bytes: int
) -> Use | None:
    """One measurement; None when it makes no sense: agents are not trusted with the store."""
    memory, gpu = float(memory_bytes), gpu_utilisation or 0.0
    gpu_memory = float(gpu_memory_bytes)
    sound = 0 <= cpus <= _MOST_CPUS and 0 <= gpu <= 1
    if not (sound and 0 <= memory <= _MOST_BYTES and 0 <= gpu_memory <= _MOST_BYTES):
        return None
    if gpu_utilisation is None:
        return Use(1, cpus, cpus, memory, memory)
    return Use(1, cpus, cpus, memory, memory, 1, gpu, gpu, gpu_memory, gpu_memory)


def folded(one: Use, other: Use) -> Use:
    """Both together."""
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


def added(one: Load, other: Load) -> Load:
    """Both together: the same group at another time."""
    return Load._make(mine + theirs for mine, theirs in zip(one, other, strict=True))


def begin(moment: float, seconds: int) -> int:
    """Where the bucket of this length begins that holds a moment."""
    return math.floor(moment / seconds) * seconds


def window(start: float, end: float, points: int, now: float) -> Window:
    """At most `points` (two or more) steps: of the finest buckets that are still kept and not needlessly many."""
    wanted = max(end - start, 1.0) / (points - 1)  # one step more, because it begins at a whole one
    level = max(_kept(now - start), _fitting(wanted))
    seconds = LEVELS[level].seconds
    step = seconds * math.ceil(wanted / seconds)
    return Window(level, step, begin(start, step), math.ceil(end / step) * step)


def parts(asked: Window, done: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(level, from, to) of the buckets that answer; `done` says until when each level is complete."""
    start = asked.start
    for level in range(asked.level, -1, -1):
        if start < asked.end:
            yield level, start, asked.end
        start = max(start, done[level])


def _kept(age: float) -> int:
    """The finest level that goes back so far; it may lack the first bucket: "the last 3 hours" are asked for late."""
    for index, level in enumerate(LEVELS):
        if level.keep_seconds is None or age <= level.keep_seconds + level.seconds:
            return index
    raise AssertionError("the last level is kept for good")


def _fitting(wanted: float) -> int:
    return max((i for i, level in enumerate(LEVELS) if level.seconds <= wanted), default=0)


def ranks_folded(buckets: Iterable[RankUse], step: int) -> list[RankUse]:
    """In steps, by rank, run and time."""
    found: dict[tuple[int, int, int, int], RankUse] = {}
    for one in buckets:
        start = begin(one.start, step)
        key = (one.rank, one.run, start, one.task_id)
        known = found.get(key)
        use = one.use if known is None else folded(known.use, one.use)
        found[key] = RankUse(one.task_id, one.run, one.rank, start, use)
    return [found[key] for key in sorted(found)]


def groups_folded(buckets: Iterable[GroupLoad], step: int) -> list[GroupLoad]:
    """In steps, by group and time."""
    found: dict[tuple[str, int], GroupLoad] = {}
    for one in buckets:
        key = (one.group, begin(one.start, step))
        known = found.get(key)
        load = one.load if known is None else added(known.load, one.load)
        found[key] = GroupLoad(*key, load)
    return [found[key] for key in sorted(found)]
