"""The precedence of queued tasks and runs, and until when it holds."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log2, nextafter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.priority import LEVELS, Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.policy.policy import Policy, Ranking
from hai_backend.scheduler.queue.history import STARTS, History
from hai_backend.scheduler.queue.precedence import (
    Precedence,
    Protection,
    QueuedPrecedence,
    compute_merit,
    compute_queued_precedence,
    compute_run_precedence,
    task_kind,
)
from hai_backend.scheduler.testing import NOW, queued, running

POLICY = Policy(overhead_share=0.01)
IN_ORDER = replace(POLICY, ranking=Ranking.SUBMITTED)
ATTAINED = replace(POLICY, ranking=Ranking.ATTAINED)
HOUR, DAY, SLICE = 3600.0, 86_400.0, 6500.0
ABOVE, NORMAL, LOW, HIGH = Priority.ABOVE_NORMAL, Priority.NORMAL, Priority.LOW, Priority.HIGH


def of_run(task: SchedTask, policy: Policy = IN_ORDER, now: float = NOW) -> Precedence:
    return compute_run_precedence(task, float(max(1, task.node_count)), History(), policy, now)


def lately(*hours: float, higher: bool) -> tuple[Suspension, ...]:
    return tuple(Suspension(NOW - HOUR * ago, 99, higher) for ago in hours)


@pytest.mark.parametrize(
    ("run", "level", "protection", "merit", "lasts"),
    [
        pytest.param(running(1, "a", since=0), NORMAL, Protection.EQUALS, 2.56, 900, id="just started"),
        pytest.param(running(1, "a", since=899), NORMAL, Protection.EQUALS, 2.56, 1, id="at its minimum"),
        pytest.param(running(1, "a", since=900), NORMAL, Protection.NONE, 2.56, 5600, id="past its minimum"),
        pytest.param(running(1, "a", since=SLICE), NORMAL, Protection.NONE, 1.5984, inf, id="past its slice"),
        pytest.param(running(1, "a", since=900, restart_seconds=130.0), NORMAL, Protection.NONE, 2.56, 12_100,
                     id="dear to suspend"),
        pytest.param(running(1, "a", since=899, restart_seconds=1.0), NORMAL, Protection.EQUALS, 2.56, 1,
                     id="a slice is no shorter than the minimum"),
        pytest.param(running(1, "a", ABOVE, since=1000), ABOVE, Protection.NONE, 2.56, 800, id="not yet demoted"),
        pytest.param(running(1, "a", ABOVE, since=1800), NORMAL, Protection.EQUALS, 2.56, 4700,
                     id="demoted, it has its slice among its new equals"),
        pytest.param(running(1, "a", ABOVE, since=SLICE), NORMAL, Protection.NONE, 1.5984, inf, id="demoted for long"),
        pytest.param(running(1, "a", since=1000, suspensions=lately(2, higher=False)), NORMAL, Protection.EQUALS,
                     2.56, 800, id="suspended for an equal lately"),
        pytest.param(running(1, "a", since=1000, suspensions=lately(2, higher=True)), NORMAL, Protection.ALL,
                     2.56, 5500, id="suspended for a higher level lately"),
        pytest.param(running(1, "a", since=6500, suspensions=lately(2, higher=True)), NORMAL, Protection.EQUALS,
                     1.5984, 1800, id="then protected from equals"),
        pytest.param(running(1, "a", since=1000, suspensions=lately(24, higher=True)), NORMAL, Protection.NONE,
                     2.56, 5500, id="that was yesterday"),
        pytest.param(running(1, "a", since=1000, suspensions=lately(23.9, higher=True)), NORMAL, Protection.ALL,
                     2.56, 360, id="that is forgotten soon"),
        pytest.param(running(1, "a", LOW, since=DAY / 2, suspensions=lately(*[20] * 24, higher=False)), LOW,
                     Protection.ALL, 1.5984, 4 * HOUR, id="at its daily budget"),
        pytest.param(running(1, "a", LOW, since=1000, created_at=NOW - DAY - 1000), NORMAL, Protection.NONE, 2.56, 5500,
                     id="lifted before it ran"),
        pytest.param(running(1, "a", HIGH, since=1000, created_at=NOW - DAY - 1000), HIGH, Protection.NONE, 2.56, 5500,
                     id="lifted to less than its own level"),
        pytest.param(running(1, "a", LOW, since=1000, created_at=NOW - DAY - 999), LOW, Protection.NONE, 2.56, 5500,
                     id="not lifted"),
        pytest.param(running(1, "a", HIGH, since=1000, spot=True, created_at=0.0, suspensions=lately(2, higher=True)),
                     Priority.AUTO, Protection.EQUALS, 2.56, 5500, id="spot: below all, protected from equals only"),
        pytest.param(running(1, "a", ABOVE, since=1000, spot=True), Priority.AUTO, Protection.NONE, 2.56, 5500,
                     id="spot is not demoted"),
        pytest.param(running(1, "a", since=1000, run_seconds=6000.0), NORMAL, Protection.NONE, 1.5984, inf,
                     id="a slice that was cut short is finished"),
        pytest.param(running(1, "a", since=1000, lost_seconds=5000.0), NORMAL, Protection.EQUALS, 2.56, 4000,
                     id="it has worked for nothing before"),
        pytest.param(running(1, "a", since=1000, lost_seconds=1e6), NORMAL, Protection.EQUALS, 2.56, 5500,
                     id="for long: its slice is over first"),
        pytest.param(running(1, "a", since=SLICE, lost_seconds=1e6), NORMAL, Protection.EQUALS, 1.5984, DAY - SLICE,
                     id="then protected for the rest of a day"),
        pytest.param(running(1, "a", since=1000, lost_seconds=5000.0, yields=True), NORMAL, Protection.NONE, 2.56, 5500,
                     id="it saves by now"),
        pytest.param(running(1, "a", since=899, unsaved_suspensions=2), NORMAL, Protection.URGENT, 2.56, 1,
                     id="suspended twice before it saved"),
        pytest.param(running(1, "a", since=900, unsaved_suspensions=9), NORMAL, Protection.NONE, 2.56, 5600,
                     id="protected for a limited time"),
        pytest.param(running(1, "a", since=800, unsaved_suspensions=2, saved_at=NOW - 1), NORMAL, Protection.EQUALS,
                     2.56, 100, id="until it has saved"),
        pytest.param(running(1, "a", since=800, unsaved_suspensions=2, saved_at=NOW - 801), NORMAL, Protection.URGENT,
                     2.56, 100, id="a checkpoint of an earlier run does not count"),
        pytest.param(running(1, "a", since=800, unsaved_suspensions=1), NORMAL, Protection.EQUALS, 2.56, 100,
                     id="suspended once before it saved"),
        pytest.param(running(1, "a", since=800, unsaved_suspensions=2, spot=True), Priority.AUTO, Protection.EQUALS,
                     2.56, 100, id="spot leaves whatever it has lost"),
        pytest.param(running(1, "a", run_started_at=None), NORMAL, Protection.EQUALS, 2.56, 900, id="begins now"),
        pytest.param(running(1, "a", Priority.AUTO, since=1000, priority=LOW), LOW, Protection.NONE, 2.56, 5500,
                     id="the level it asked for, when nobody noted at which it runs"),
        pytest.param(running(1, "a", Priority.AUTO, since=1000), NORMAL, Protection.NONE, 2.56, 5500,
                     id="NORMAL when nobody knows"),
    ],
)  # fmt: skip
def test_the_precedence_of_a_run(
    run: SchedTask, level: Priority, protection: Protection, merit: float, lasts: float
) -> None:
    precedence = of_run(run)
    assert (precedence.level, precedence.protection) == (level, protection)
    assert precedence.merit == pytest.approx(merit)
    assert precedence.until - NOW == pytest.approx(lasts)


@pytest.mark.parametrize(
    ("before", "began", "now"),
    [
        pytest.param(0.0, 1700000651.5929728, 1700001560.2182925, id="large, rounded down"),
        pytest.param(9604.251300066539, 31.84148808967565, 63.10682188770933, id="small, rounded up"),
        pytest.param(0.0, nextafter(30.0, inf), 60.0, id="of the first bin, rounded down"),
        pytest.param(STARTS[-2], NOW, NOW, id="the last bin but one"),
        pytest.param(STARTS[-1], NOW, NOW, id="the last bin"),
    ],
)  # fmt: skip
def test_a_rounded_age_is_in_the_bin_that_begins_there(
    before: float, began: float, now: float
) -> None:
    born = began - before
    run = running(1, "a", run_seconds=before, run_started_at=began, restart_seconds=1e-12)
    precedence = of_run(replace(run, created_at=began), replace(ATTAINED, minimum_seconds=0.0), now)
    later = [born + start for start in STARTS if born + start > now]
    age = STARTS[len(STARTS) - len(later) - 1]
    assert precedence.until == min(later, default=inf)
    assert precedence.merit == pytest.approx(1.6 * 0.999 / (age + 1))


@pytest.mark.parametrize(
    ("facts", "turn", "expected"),
    [
        pytest.param({"created_at": NOW}, False, (LOW, 0.5, NOW + DAY, False), id="new"),
        pytest.param({"created_at": NOW}, True, (LOW, 0.5, NOW + SLICE, False), id="its turn will come"),
        pytest.param({"created_at": NOW - SLICE}, True, (LOW, 0.8, NOW + SLICE, False), id="its turn"),
        pytest.param({"created_at": NOW - 2 * SLICE}, True, (LOW, 0.5 * 1.6**2, NOW + SLICE, False), id="two slices"),
        pytest.param({"created_at": NOW - 12 * SLICE}, True, (LOW, 0.5 * 1.6**8, NOW + DAY - 12 * SLICE, False),
                     id="eight slices count at most"),
        pytest.param({"created_at": NOW - SLICE}, False, (LOW, 0.5, NOW + DAY - SLICE, False), id="not its turn"),
        pytest.param({"created_at": NOW - DAY}, False, (NORMAL, inf, inf, True), id="lifted"),
        pytest.param({"created_at": 0.0, "spot": True}, True, (Priority.AUTO, 0.5, inf, False), id="spot"),
        pytest.param({"created_at": 0.0, "waiting_since": NOW}, False, (LOW, 0.5, NOW + DAY, False), id="waits anew"),
        pytest.param({"created_at": NOW, "restart_seconds": 2000.0}, True, (LOW, 0.5, NOW + DAY, False),
                     id="a slice longer than patience"),
    ],
)  # fmt: skip
def test_the_precedence_of_a_queued_task(
    facts: dict[str, float], turn: bool, expected: QueuedPrecedence
) -> None:
    assert (
        compute_queued_precedence(queued(1, 1, LOW, **facts), LOW, 0.5, POLICY, NOW, turn)
        == expected
    )


def test_lifting_never_lowers_a_level() -> None:
    level, *_ = compute_queued_precedence(
        queued(1, 1, HIGH, created_at=0.0), HIGH, 0.5, POLICY, NOW
    )
    assert level is HIGH


def test_attained_service_counts_nodes_and_seconds() -> None:
    young, old, wide = (
        of_run(task, ATTAINED).merit
        for task in (running(1, "a", since=1000), running(2, "a", since=4000), running(3, "a b", since=1000))
    )  # fmt: skip
    assert young > wide > old


def test_earlier_runs_count_towards_age() -> None:
    split = of_run(running(1, "a", since=1000, run_seconds=3000.0), ATTAINED)
    assert split.merit == of_run(running(1, "a", since=4000), ATTAINED).merit


marks = st.lists(
    st.tuples(st.floats(0.0, 2 * DAY), st.booleans()).map(
        lambda s: Suspension(NOW - s[0], 7, s[1])
    ),
    max_size=5,
).map(lambda found: tuple(sorted(found, key=lambda s: s.at)))

runs = st.builds(
    running,
    st.just(1),
    st.sampled_from(["a", "a b"]),
    st.sampled_from(LEVELS),
    since=st.floats(0.0, 3 * DAY) | st.sampled_from(STARTS[:30]),
    run_seconds=st.floats(0.0, 1e6) | st.sampled_from([0.0, *STARTS[:30]]),
    suspensions=marks,
    restart_seconds=st.sampled_from([None, 1.0, 300.0]),
    save_seconds=st.sampled_from([0.0, 8.0]),
    unsaved_suspensions=st.sampled_from([0, 2]),
    saved_at=st.sampled_from([None, 10.0]),
    lost_seconds=st.floats(0.0, 2 * DAY),
    yields=st.booleans(),
)
POLICIES = (Policy(daily_suspensions=3), IN_ORDER, ATTAINED)


@given(runs, st.sampled_from(POLICIES), st.floats(0.0, 1.0), st.sampled_from([0.0, 1.7e9 + 1 / 3]))
@settings(max_examples=300, deadline=None)
def test_a_precedence_holds_until_its_until_time_and_then_changes(
    run: SchedTask, policy: Policy, part: float, shift: float
) -> None:
    """Also at times as large as real ones, where a sum of seconds is rounded."""
    began = (run.run_started_at or NOW) + shift
    moved = tuple(replace(s, at=s.at + shift) for s in run.suspensions)
    run = replace(run, run_started_at=began, created_at=began - 10, suspensions=moved)
    now = NOW + shift
    precedence = of_run(run, policy, now)
    assert precedence.until > now
    if precedence.until == inf:
        assert of_run(run, policy, now + 400 * DAY) == precedence
        return
    between = now + part * (precedence.until - now)
    for moment in (between, nextafter(precedence.until, 0)):
        if now <= moment < precedence.until:
            assert of_run(run, policy, moment) == precedence
    assert of_run(run, policy, precedence.until) != precedence


def test_learned_merits_are_indices_in_steps_of_9_percent() -> None:
    history, task = History(), queued(1)
    for age in STARTS[:-1]:
        index = history.curve(task_kind(task)).index(STARTS.index(age))
        merit = compute_merit(task, age, 2.0, history, POLICY) * 2.0
        assert merit == pytest.approx(index, rel=2 ** (1 / 16) - 1)
        assert log2(merit) * 8 == pytest.approx(round(log2(merit) * 8))


def test_with_equal_merits_one_slice_of_waiting_counts() -> None:
    late = queued(1, 1, LOW, created_at=NOW - 2 * SLICE)
    assert compute_queued_precedence(late, LOW, 0.5, IN_ORDER, NOW, True) == (
        LOW,
        0.8,
        NOW + DAY - 2 * SLICE,
        False,
    )
