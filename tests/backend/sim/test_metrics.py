"""Figures of a replay: a case computed by hand, and general properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.domain.priority import Priority
from hai_backend.sim.replay.job import JobRecord, Outcome, Usage
from hai_backend.sim.report.metrics import jain, metrics, percentile


@pytest.fixture
def by_hand(make_job) -> Outcome:
    """Two nodes. Job 1 runs 0-1 h on one; job 2 wants both, waits until 1 h, loses 36 s, ends at 2.01 h;
    job 3 comes at 2 h and runs from 2.01 h for an hour on one."""
    a = make_job(1, 0, 3600, user="ann")
    b = make_job(2, 1800, 3600, user="bob", nodes=2, gpus=16, priority=Priority.HIGH)
    c = make_job(3, 7200, 3600, user="ann")
    records = (
        JobRecord(a, 0, 3600, 0, node_seconds=3600),
        JobRecord(b, 3600, 7236, 1, node_seconds=2 * 3636),
        JobRecord(c, 7236, 10836, 0, node_seconds=3600),
    )
    usage = (
        Usage(0, 1, 1),
        Usage(1800, 1, 3),
        Usage(3600, 2, 2),
        Usage(7200, 2, 3),
        Usage(7236, 1, 1),
        Usage(10836, 0, 0),
    )
    return Outcome("x", 2, records, usage, (0.001, 0.002, 0.003))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("jobs", 3),
        ("nodes", 2),
        ("jct_mean_h", (3600 + 5436 + 3636) / 3 / 3600),
        ("jct_p50_h", 1.01),
        ("wait_mean_h", (0 + 1836 + 36) / 3 / 3600),
        ("wait_p50_h", 0.01),
        ("wait_p95_h", (36 + 0.9 * 1800) / 3600),
        ("first_wait_mean_h", (1800 + 36) / 3 / 3600),
        ("slowdown_mean", (1 + 5436 / 3600 + 3636 / 3600) / 3),
        ("occupancy", (3600 + 2 * 3600) / (2 * 7200)),
        ("saturation", (3600 + 7272 + 3600) / (1800 + 2 * 1800 + 2 * 3636 + 3600)),
        ("useful_share", (3600 * 4) / (3600 * 2 + 7272)),
        ("lost_node_hours", 0.02),
        ("suspensions", 1),
        ("suspensions_per_job", 1 / 3),
        ("suspensions_max", 1),
        ("makespan_h", 3.01),
        ("jain", (7200 / 7236 + 3600 / 5436) ** 2 / 2 / ((7200 / 7236) ** 2 + (3600 / 5436) ** 2)),
        ("wait_by_priority_h", {"HIGH": 0.51, "NORMAL": 0.005}),
        ("pass_p50_ms", 2.0),
        ("pass_p99_ms", 2.98),
    ],
)
def test_a_case_worked_by_hand(by_hand: Outcome, key: str, expected: object) -> None:
    assert metrics(by_hand)[key] == pytest.approx(expected)


def test_on_packed_nodes_a_job_counts_by_its_gpus(make_job) -> None:
    small, cpu = make_job(1, 0, 100, gpus=2), make_job(2, 0, 100, gpus=0)
    records = (
        JobRecord(small, 0, 110, 0, node_seconds=0.25 * 110),
        JobRecord(cpu, 0, 100, 0, node_seconds=100),
    )
    outcome = Outcome("x", 1, records, (Usage(0, 1.25, 1.25),))
    found = metrics(outcome, gpus_per_node=8, packed=True)
    assert found["useful_share"] == pytest.approx(125 / 127.5)
    assert found["lost_node_hours"] == pytest.approx(2.5 / 3600)


def test_short_jobs_count_as_ten_minutes_in_the_slowdown(make_job) -> None:
    records = (JobRecord(make_job(1, 0, 1), 1199, 1200), JobRecord(make_job(2, 0, 1), 0, 1))
    found = metrics(Outcome("x", 1, records, ()))
    assert found["slowdown_mean"] == pytest.approx((2 + 1) / 2)


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(Outcome("x", 1, (), ()), id="no job"),
        pytest.param(Outcome("x", 0, (), (Usage(0, 0, 0),)), id="no node"),
    ],
)
def test_no_jobs_give_figures(outcome: Outcome) -> None:
    found = metrics(outcome)
    numbers = [value for value in found.values() if not isinstance(value, dict)]
    assert all(math.isfinite(number) for number in numbers)


def test_jobs_that_come_at_once_are_measured_until_the_end(make_job, serial) -> None:
    found = metrics(serial([make_job(1, 0, 60), make_job(2, 0, 60)], nodes=2, label="x"))
    assert found["occupancy"] == pytest.approx(0.5)


values = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


@given(values, st.floats(0, 100))
def test_percentiles_are_those_of_numpy(found: list[float], percent: float) -> None:
    expected = float(np.percentile(found, percent))
    assert percentile(sorted(found), percent) == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_jain_index_is_between_1_over_n_and_1(shares: list[float]) -> None:
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9


@given(st.lists(st.tuples(st.integers(0, 10**5), st.integers(0, 10**4)), min_size=1, max_size=20))
def test_metrics_that_are_shares_are_between_0_and_1(serial, make_job, facts) -> None:
    jobs = [make_job(i, s, d) for i, (s, d) in enumerate(sorted(facts), 1)]
    found = metrics(serial(jobs, nodes=1, label="x"))
    for key in ("occupancy", "saturation", "useful_share", "jain"):
        assert 0 <= found[key] <= 1 + 1e-9
    assert found["saturation"] == pytest.approx(1)  # no node is idle while a job waits
    assert found["jct_p50_h"] <= found["jct_p95_h"] <= found["jct_p99_h"]
