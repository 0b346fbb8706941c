"""Usage over time in every store: steps, coarser levels, expiry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from hai_backend.domain.usage import (
    LEVELS,
    GroupLoad,
    Load,
    Minutes,
    RankUse,
    Use,
    Window,
    plan_window,
    read_measurement,
)
from hai_backend.store.base import Store

T0 = 1_700_006_400  # a multiple of two hours
HOUR = 3600


def use(n: int, count: int = 1) -> Use:
    """Return a usage of whole numbers, so that sums are exact."""
    return Use(count, n * count, n, n * count * 1024, n * 1024, count, 0.5 * count, 0.5, n, n)


def ranks(task_id: int, starts: Iterable[int], *numbers: int) -> list[RankUse]:
    return [
        RankUse(task_id, 1, rank, start, use((start - T0) // 60 + 1))
        for start in starts
        for rank in numbers
    ]


async def write_minutes(store: Store, start: int, end: int, *numbers: int) -> None:
    """Write minutes of two tasks and a node group from `start` to `end`."""
    for minute in range(start, end, 60):
        groups = [GroupLoad("default", minute, Load(1, 4, 1, 32, 8, 2, 8, 4.0))]
        uses = [*ranks(1, [minute], *numbers), *ranks(2, [minute], 0)]
        await store.add_usage(Minutes(minute + 60, uses, groups))


async def test_minutes_are_ordered_by_rank_and_time(store: Store) -> None:
    await write_minutes(store, T0, T0 + 180, 0, 1)
    query = plan_window(T0, T0 + 180, 100, now=T0 + 180)
    assert query == Window(0, 60, T0, T0 + 180)
    minutes = range(T0, T0 + 180, 60)
    assert await store.task_usage(1, (), query) == sorted(
        ranks(1, minutes, 0, 1), key=lambda use: use.rank
    )
    assert await store.task_usage(1, {1}, query) == ranks(1, minutes, 1)
    assert await store.task_usage(3, (), query) == []


async def test_a_minute_that_is_written_again_is_replaced(store: Store) -> None:
    first = RankUse(1, 1, 0, T0, use(1))
    await store.add_usage(Minutes(T0 + 60, [first]))
    await store.add_usage(Minutes(T0 + 60, [replace(first, use=use(2))]))
    (found,) = await store.task_usage(1, (), Window(0, 60, T0, T0 + 60))
    assert found.use == use(2)


async def test_a_use_without_gpus_is_stored_unchanged(store: Store) -> None:
    without_gpu = read_measurement(1.5, 1 << 40, None, 0)
    assert without_gpu is not None
    await store.add_usage(Minutes(T0 + 60, [RankUse(1, 1, 0, T0, without_gpu)]))
    (found,) = await store.task_usage(1, (), Window(0, 60, T0, T0 + 60))
    assert found.use == without_gpu


async def test_a_step_merges_its_minutes(store: Store) -> None:
    await write_minutes(store, T0, T0 + 300, 0)
    found = await store.task_usage(1, (), Window(0, 120, T0, T0 + 360))
    assert [(one.start, one.use.beats, one.use.cpus, one.use.cpus_max) for one in found] == [
        (T0, 2, 3.0, 2.0),
        (T0 + 120, 2, 7.0, 4.0),
        (T0 + 240, 1, 5.0, 5.0),
    ]


async def test_every_level_has_the_same_sums(store: Store) -> None:
    """The last half hour is not complete in the coarsest level and is read from finer ones."""
    await write_minutes(store, T0, T0 + 9000, 0)
    numbers = range(1, 151)
    for level in range(len(LEVELS)):
        query = Window(level, 2 * HOUR, T0, T0 + 4 * HOUR)
        first, second = await store.task_usage(1, (), query)
        assert (first.start, second.start) == (T0, T0 + 2 * HOUR)
        assert first.use.beats + second.use.beats == 150
        assert first.use.cpus + second.use.cpus == sum(numbers)
        assert (first.use.cpus_max, second.use.cpus_max) == (120, 150)
        first_load, second_load = await store.group_usage("", query)
        assert first_load.load == Load(120, 480, 120, 3840, 960, 240, 960, 480.0)
        assert second_load.load.minutes == 30
    assert await store.group_usage("unknown", query) == []


async def test_a_level_continues_after_a_pause_of_the_server(store: Store) -> None:
    """Several buckets end during the pause. They are built from the minutes that exist."""
    await write_minutes(store, T0, T0 + 300, 0)
    resumed_at = T0 + 2400
    await write_minutes(store, resumed_at, resumed_at + 60, 0)
    found = await store.task_usage(1, (), Window(1, 600, T0, resumed_at + 600))
    assert [(one.start, one.use.beats) for one in found] == [(T0, 5), (resumed_at, 1)]


async def test_expired_buckets_are_deleted(store: Store) -> None:
    await write_minutes(store, T0, T0 + 120, 0)
    for level in LEVELS[:-1]:
        assert level.keep_seconds is not None
        now = T0 + level.keep_seconds + 7200
        await store.add_usage(Minutes(now, []))
    minutes = await store.task_usage(1, (), Window(0, 60, T0, T0 + 120))
    tens = await store.task_usage(1, (), Window(1, 600, T0, T0 + 600))
    assert (minutes, tens) == ([], [])
    (remaining,) = await store.task_usage(1, (), Window(2, 7200, T0, T0 + 7200))
    assert (remaining.use.beats, remaining.use.cpus) == (2, 3.0)


async def test_what_a_wrong_clock_wrote_ahead_does_not_stay(store: Store) -> None:
    ahead = T0 + 10 * 365 * 24 * HOUR
    await write_minutes(store, ahead, ahead + 600, 0)
    await write_minutes(store, T0, T0 + 600, 0)
    (found,) = await store.task_usage(1, (), Window(1, 600, T0, T0 + 600))
    assert found.use.beats == 10


@pytest.mark.parametrize("points", [2, 10, 100, 500])
async def test_never_more_points_than_asked_for(store: Store, points: int) -> None:
    await write_minutes(store, T0, T0 + 2 * HOUR, 0)
    query = plan_window(T0 + 31, T0 + 2 * HOUR - 7, points, now=T0 + 2 * HOUR)
    assert 0 < len(await store.task_usage(1, (), query)) <= points
