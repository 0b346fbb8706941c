"""Learned run times, compared with results computed by hand."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.scheduler.queue.history import (
    BINS,
    RATIO,
    STARTS,
    Curve,
    History,
    TaskKind,
    bin_of,
)

WIDTHS = [b - a for a, b in pairwise((*STARTS, 5 * STARTS[-1]))]
LIKE = ("u", "train", 1, 8)

endings = st.lists(st.tuples(st.sampled_from(["u", "v"]), st.floats(0.0, 1e7)), max_size=30)


def learned(*seconds: float, task_kind: TaskKind = LIKE) -> History:
    history = History()
    for ended in seconds:
        history.learn(task_kind, ended)
    history.refresh()
    return history


def by_brute_force(curve: Curve) -> list[float]:
    """Compute the best probability of ending per second from each bin, over all numbers of bins."""
    alive = [1.0, *curve.beyond]
    spent = [w * (a + b) / 2 for w, a, b in zip(WIDTHS, alive, alive[1:], strict=False)]
    return [
        max((alive[i] - alive[j]) / sum(spent[i:j]) for j in range(i + 1, BINS + 1)) for i in range(BINS)
    ]  # fmt: skip


def every_index(curve: Curve) -> list[float]:
    return [curve.index(bin) for bin in range(BINS)]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, 0), (29.9, 0), (30.0, 1), (38.9, 1), (39.0, 2), (1e12, BINS - 1), (inf, BINS - 1)],
)
def test_the_bin_of_an_age(seconds: float, expected: int) -> None:
    assert bin_of(seconds) == expected


def test_under_the_prior_half_of_the_tasks_end_before_four_times_their_age() -> None:
    curve = History().curve(LIKE)
    for age in (100.0, 5000.0, 100_000.0):
        assert curve.remaining(age, 0.5) == pytest.approx(3 * age, rel=0.2)
    assert (curve.endings, curve.kind) == (0, ())


def test_under_the_prior_the_index_falls_with_age() -> None:
    indices = every_index(History().curve(LIKE))
    assert all(a > b for a, b in pairwise(indices[1:-1]))


def test_the_gittins_index_of_a_simple_case() -> None:
    """Half of very many tasks end in the first bin, and half in the bin of 1000 s."""
    late = bin_of(1000.0)
    index = learned(*[10.0, 1000.0] * 200_000).curve(LIKE).index
    first = 0.5 / (WIDTHS[0] * (1 + 0.5) / 2)
    assert index(0) == pytest.approx(first, rel=1e-3)
    after = STARTS[late] - STARTS[1] + WIDTHS[late] / 2
    assert index(1) == pytest.approx(1 / after, rel=1e-2)
    assert index(late) == pytest.approx(2 / WIDTHS[late], rel=1e-2)
    assert index(late) > index(1)  # a task that has run for so long is more likely to end


def test_a_new_kind_uses_the_curves_of_coarser_kinds() -> None:
    quick = learned(*[20.0] * 100)
    task_kind = (LIKE, ("v", "train", 1, 8), ("v", "x", 1, 8), ("v", "x", 2, 8))
    own, same_name, same_size, other = (quick.curve(kind).index(0) for kind in task_kind)
    assert own >= same_name >= same_size >= other > History().curve(LIKE).index(0)
    slow = History()
    for ended, kind in ((20.0, LIKE), (9e4, ("v", "x", 1, 8)), (9e5, ("v", "x", 2, 8))):
        for _ in range(50):
            slow.learn(kind, ended)
    assert slow.curve(LIKE).index(0) > slow.curve(("w", "train", 1, 8)).index(0)
    assert slow.curve(("w", "y", 1, 8)).index(0) > slow.curve(("w", "y", 2, 8)).index(0)


def test_a_curve_names_its_kind_and_its_endings() -> None:
    history = learned(20.0, 30.0, 40.0)
    assert (history.curve(LIKE).endings, history.curve(LIKE).kind) == (3, LIKE)
    coarse = history.curve(("v", "train", 1, 8))
    assert (coarse.endings, coarse.kind) == (3, LIKE[1:])


def test_curves_are_cached() -> None:
    asked, fresh = (learned(20.0, 30.0, 40.0).curve(LIKE) for _ in range(2))
    assert asked.index(0) > 0
    assert (asked, repr(asked)) == (fresh, repr(fresh))


def test_two_endings_are_too_few_for_a_curve() -> None:
    assert learned(20.0, 30.0).curve(LIKE) == History().curve(LIKE)


def test_curves_change_only_at_a_refresh() -> None:
    history = learned(20.0, 20.0, 20.0)
    before = history.curve(LIKE)
    history.learn(LIKE, 9000.0)
    assert history.new_endings == 1
    assert history.curve(LIKE) is before
    history.refresh()
    assert history.new_endings == 0
    assert history.curve(LIKE) != before


def test_a_curve_with_few_new_endings_is_not_updated() -> None:
    history = learned(*[20.0] * 30)
    before = history.curve(LIKE)
    for expected in (True, True, True, False):
        history.learn(LIKE, 9000.0)
        history.refresh()
        assert (history.curve(LIKE) is before) == expected


@given(endings)
@settings(max_examples=40, deadline=None)
def test_the_index_is_the_best_over_all_horizons(ended: list[tuple[str, float]]) -> None:
    history = History()
    for user, seconds in ended:
        history.learn((user, *LIKE[1:]), seconds)
    history.refresh()
    curve = history.curve(LIKE)
    assert every_index(curve) == pytest.approx(by_brute_force(curve), rel=1e-9)
    assert all(a > b > 0 for a, b in pairwise((1.0, *curve.beyond)))


@given(endings, st.permutations(range(30)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_endings_does_not_matter(
    ended: list[tuple[str, float]], order: list[int]
) -> None:
    one, other = History(), History()
    for user, seconds in ended:
        one.learn((user, *LIKE[1:]), seconds)
    for i in order:
        if i < len(ended):
            other.learn((ended[i][0], *LIKE[1:]), ended[i][1])
    assert one.curve(LIKE) == other.curve(LIKE)


@given(st.floats(0.0, 1e6), st.lists(st.floats(1.0, 1e6), max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_larger_share_ends_later(age: float, ended: list[float]) -> None:
    curve = learned(*ended).curve(LIKE)
    times = [curve.remaining(age, share) for share in (0.1, 0.5, 0.9)]
    assert 0 <= times[0] <= times[1] <= times[2]


def test_all_tasks_never_end_in_no_time() -> None:
    assert History().curve(LIKE).remaining(0.0, 1.0) == inf


def test_the_last_of_fifty_bins_begins_after_103_days() -> None:
    assert (len(STARTS), BINS, STARTS[0], STARTS[1]) == (50, 50, 0.0, 30.0)
    assert STARTS[-1] / 86_400 == pytest.approx(103, abs=1)


def test_bins_grow_by_one_ratio() -> None:
    assert all(b / a == pytest.approx(RATIO) for a, b in pairwise(STARTS[1:]))


@pytest.mark.parametrize(
    ("age", "share", "expected"),
    [
        pytest.param(0.0, 0.5, 30 * 0.5 / 0.9, id="linear within a bin"),
        pytest.param(15.0, 0.5, 30 * (1 - 0.55 * 0.5) / 0.9 - 15, id="from the middle of a bin"),
        pytest.param(0.0, 0.95, 30 + 9 * 0.05 / 0.09, id="into the next bin"),
        pytest.param(30.0, 0.5, 9 * 0.05 / 0.09, id="from the start of the next bin"),
        pytest.param(0.0, 0.0, 0.0, id="none of them ends at once"),
    ],
)
def test_the_remaining_time_follows_the_curve(age: float, share: float, expected: float) -> None:
    """Nine of ten end in the first 30 s, nine of ten of the others in the next 9 s, and so on."""
    beyond = tuple(0.1**i for i in range(1, BINS + 1))
    curve = Curve((0.9,) * BINS, beyond, (), 0)
    assert curve.remaining(age, share) == pytest.approx(expected)


def test_beyond_the_last_bin_as_many_remain_as_at_its_end() -> None:
    curve = History().curve(LIKE)
    assert curve.remaining(1e12, 0.5) == inf


def test_a_coarser_kind_counts_as_ten_endings() -> None:
    prior = History().curve(LIKE).hazards[0]
    assert prior == pytest.approx(1 - RATIO**-0.5)
    everybody = learned(*[10.0] * 30).curve(("v", "x", 2, 4))
    assert everybody.hazards[0] == pytest.approx((30 + 10 * prior) / 40)
    assert everybody.hazards[1] == pytest.approx(prior)
    assert everybody.kind == ()


def test_a_task_older_than_all_endings_still_has_a_merit() -> None:
    """All of very many tasks end in the first bin."""
    curve = learned(*[10.0] * 100_000).curve(LIKE)
    assert curve.hazards[0] == 0.999999
    assert all(0 < index < inf for index in every_index(curve))


def test_curves_are_updated_a_few_at_a_time_the_coarsest_first() -> None:
    history, kinds = History(), (LIKE, ("v", "train", 1, 8))
    before = [history.curve(kind) for kind in kinds]
    assert not history.rebuild(1)
    for _ in range(3):
        history.learn(LIKE, 20.0)
    assert history.new_endings == 3
    assert [history.curve(kind) for kind in kinds] == before
    history.outdate()
    assert history.new_endings == 0
    steps = [history.rebuild(1)]
    while steps[-1]:
        assert len(steps) < 10
        steps.append(history.rebuild(1))
    assert len(steps) == 6  # two kinds, name and size, size, all tasks
    assert [history.curve(kind).kind for kind in kinds] == [LIKE, LIKE[1:]]


def test_rebuilding_more_curves_than_there_are_rebuilds_all() -> None:
    history = History()
    history.curve(LIKE)
    for _ in range(3):
        history.learn(LIKE, 20.0)
    history.outdate()
    assert history.rebuild(99)
    assert not history.rebuild(99)
    assert history.curve(LIKE).kind == LIKE


def test_endings_of_other_kinds_outdate_no_curve() -> None:
    history = learned(*[20.0] * 100)
    history.curve(LIKE)
    for _ in range(9):
        history.learn(("w", "z", 5, 5), 20.0)
    history.outdate()
    assert not history.rebuild(1)


def sweep(history: History, names: range, times: int = 1) -> None:
    for i in names:
        for _ in range(times):
            history.learn(("u", f"sweep-{i}", 2, 8), 9000.0)


def test_kinds_with_the_oldest_endings_are_dropped() -> None:
    history = learned(*[20.0] * 30)
    sweep(history, range(10_000), times=3)
    assert history.curve(LIKE).kind == ()
    assert history.curve(("u", "sweep-9999", 2, 8)).kind == ("u", "sweep-9999", 2, 8)


def test_names_with_one_ending_do_not_displace_others() -> None:
    history = learned(*[20.0] * 30)
    history.learn(("u", "seldom", 1, 8), 20.0)
    sweep(history, range(10_000))
    for _ in range(2):
        history.learn(("u", "seldom", 1, 8), 20.0)
    assert history.curve(("u", "seldom", 1, 8)).kind == (1, 8)  # it has only two endings
    assert history.curve(LIKE).kind == LIKE


def test_unused_curves_are_dropped() -> None:
    history = learned(*[20.0] * 30)
    assert history.curve(LIKE).kind == LIKE
    sweep(history, range(10_000), times=3)
    for i in range(10_000):
        history.curve(("u", f"sweep-{i}", 2, 8))
    assert history.curve(LIKE).kind == ()


def test_curves_of_coarser_kinds_are_dropped_first() -> None:
    history = learned(*[20.0] * 30)
    own = history.curve(LIKE)
    for i in range(12_000):
        history.curve((f"user{i}", *LIKE[1:]))
    assert history.curve(LIKE) is own
    assert len(history._curves) <= 10_000


def test_outdated_curves_stay_marked() -> None:
    history = learned(*[20.0] * 100)
    before = history.curve(LIKE)
    for _ in range(50):
        history.learn(("w", "z", 5, 5), 9000.0)
    history.outdate()
    assert history.rebuild(1)  # the curve of all tasks
    history.outdate()
    assert history.rebuild(99)
    assert history.curve(LIKE) != before
