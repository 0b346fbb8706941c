"""Merging buckets loses nothing in any order, and windows have the requested number of steps."""

from __future__ import annotations

import math
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.usage import (
    LEVELS,
    GroupLoad,
    Load,
    RankUse,
    Use,
    Window,
    bucket_start,
    merge_group_buckets,
    merge_loads,
    merge_rank_buckets,
    merge_uses,
    plan_window,
    read_measurement,
    split_by_level,
)

NOW = 1_700_000_000.0
YEAR = 366 * 24 * 3600
numbers = st.integers(0, 1 << 30).map(float)  # sums of integers are exact
shares = st.integers(0, 64).map(lambda n: n / 64)


def sound(cpus: float, memory: float, gpu: float | None, gpu_memory: float) -> Use:
    found = read_measurement(min(cpus, 1e6), int(memory), gpu, int(gpu_memory))
    assert found is not None
    return found


uses = st.builds(sound, numbers, numbers, st.none() | shares, numbers)
loads = st.builds(Load, st.just(1), *[numbers] * 7)
starts = st.integers(0, 10 * 7200)
rank_uses = st.builds(
    RankUse,
    st.just(7),
    st.integers(1, 2),
    st.integers(0, 2),
    starts.map(lambda n: n // 60 * 60),
    uses,
)


@given(uses, uses, uses)
def test_merging_is_associative_and_commutative(a: Use, b: Use, c: Use) -> None:
    assert merge_uses(merge_uses(a, b), c) == merge_uses(a, merge_uses(b, c))
    assert merge_uses(a, b) == merge_uses(b, a)


@given(loads, loads, loads)
def test_merging_loads_is_associative_and_commutative(a: Load, b: Load, c: Load) -> None:
    assert merge_loads(merge_loads(a, b), c) == merge_loads(a, merge_loads(b, c))
    assert merge_loads(a, b) == merge_loads(b, a)


@given(st.lists(rank_uses, max_size=40), st.randoms())
def test_no_measurement_is_lost_and_order_does_not_matter(
    buckets: list[RankUse], random: object
) -> None:
    shuffled = buckets.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    coarse = merge_rank_buckets(buckets, 600)
    assert coarse == merge_rank_buckets(shuffled, 600)
    assert sum(one.use.beats for one in coarse) == len(buckets)
    assert sum(one.use.cpus for one in coarse) == sum(one.use.cpus for one in buckets)
    assert len({(one.run, one.rank, one.start) for one in coarse}) == len(coarse)


@given(st.lists(rank_uses, max_size=40))
def test_merging_in_two_steps_equals_merging_at_once(buckets: list[RankUse]) -> None:
    assert merge_rank_buckets(merge_rank_buckets(buckets, 600), 7200) == merge_rank_buckets(
        buckets, 7200
    )


@given(st.lists(st.builds(GroupLoad, st.sampled_from("ab"), starts, loads), max_size=20))
def test_group_buckets_are_merged(buckets: list[GroupLoad]) -> None:
    coarse = merge_group_buckets(merge_group_buckets(buckets, 600), 7200)
    assert coarse == merge_group_buckets(buckets, 7200)
    assert sum(one.load.minutes for one in coarse) == len(buckets)


@given(st.lists(uses, min_size=1))
def test_a_mean_lies_below_its_maximum(several: list[Use]) -> None:
    whole = reduce(merge_uses, several)
    assert whole.cpus / whole.beats <= whole.cpus_max == max(one.cpus for one in several)
    assert whole.gpu_utilisation <= whole.gpu_utilisation_max * whole.gpu_beats


@pytest.mark.parametrize(
    "values",
    [
        pytest.param((math.nan, 0, None, 0), id="no number"),
        pytest.param((math.inf, 0, None, 0), id="endless"),
        pytest.param((-0.1, 0, None, 0), id="less than nothing"),
        pytest.param((1e9, 0, None, 0), id="more CPUs than there are"),
        pytest.param((1.0, -1, None, 0), id="negative memory"),
        pytest.param((1.0, 1 << 62, None, 0), id="more memory than there is"),
        pytest.param((1.0, 0, math.nan, 0), id="GPUs that are no number"),
        pytest.param((1.0, 0, 1.5, 0), id="busier than busy"),
        pytest.param((1.0, 0, 0.5, -1), id="negative GPU memory"),
    ],
)
def test_invalid_measurements_are_rejected(values: tuple[float, int, float | None, int]) -> None:
    assert read_measurement(*values) is None


@given(st.floats(0, 3 * YEAR), st.floats(1e-3, 3 * YEAR), st.integers(2, 500))
def test_a_window_covers_the_query_in_at_most_so_many_steps(
    age: float, span: float, points: int
) -> None:
    start = NOW - age
    asked = plan_window(start, start + span, points, NOW)
    assert asked.start <= start
    assert asked.end >= start + span
    assert (asked.end - asked.start) % asked.step == 0
    assert (asked.end - asked.start) // asked.step <= points
    level = LEVELS[asked.level]
    assert asked.step % level.seconds == 0
    assert level.keep_seconds is None or age <= level.keep_seconds + level.seconds


@pytest.mark.parametrize(
    ("ago", "points", "level", "step"),
    [
        pytest.param(3600, 100, 0, 60, id="an hour, by the minute"),
        pytest.param(3 * 3600, 100, 0, 120, id="three hours, by two minutes"),
        pytest.param(3 * 3600, 19, 1, 600, id="no finer than needed"),
        pytest.param(4 * 3600, 500, 1, 600, id="minutes are gone"),
        pytest.param(4 * 24 * 3600, 500, 2, 7200, id="tens of minutes are gone"),
        pytest.param(365 * 24 * 3600, 100, 2, 45 * 7200, id="a year"),
    ],
)
def test_a_window_uses_the_finest_level_that_is_kept_and_fits(
    ago: int, points: int, level: int, step: int
) -> None:
    asked = plan_window(NOW - ago, NOW, points, NOW)
    assert (asked.level, asked.step) == (level, step)


@given(st.integers(0, 2), st.lists(st.integers(0, 100), min_size=3, max_size=3))
def test_every_time_is_read_from_one_level(level: int, ends: list[int]) -> None:
    """Until where a level is complete, it answers; after that the next finer one."""
    done = sorted((7200 * n for n in ends), reverse=True)  # finer levels are complete for longer
    found = list(split_by_level(Window(level, 7200, 0, 200 * 7200), done))
    assert found[0][:2] == (level, 0)
    assert all(since == done[finer + 1] for finer, since, _ in found[1:])


def test_buckets_begin_at_multiples_of_their_length() -> None:
    assert [bucket_start(t, 60) for t in (0.0, 59.9, 60.0, 61)] == [0, 0, 60, 60]
