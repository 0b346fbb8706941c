"""Equal users with one long task each share one node, replayed on the virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from hai_backend.scheduler import Policy
from hai_backend.scheduler.policy.policy import Ranking
from hai_backend.sim.replay import virtual_cluster as module
from hai_backend.sim.replay.job import Job, Outcome
from hai_backend.sim.replay.replay import Cluster, replay

WORK = 36_000.0
DEFAULT, IN_ORDER = Policy(), Policy(ranking=Ranking.SUBMITTED)
SLICE, GRACE = DEFAULT.restart_seconds / DEFAULT.overhead_share, 5.0


@dataclass(frozen=True)
class Occupancy:
    """The time of one task on the node, until it ends or leaves."""

    task: int
    began: float
    until: float


def replayed(
    users: int, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> tuple[Outcome, list[Occupancy]]:
    """Return the outcome, and the tasks on the node one after the other."""
    began: list[tuple[int, float]] = []
    start = module.VirtualCluster._start

    def record_start(self, simulated, nodes, level):  # type: ignore[no-untyped-def]
        began.append((simulated.task.id, self.now))
        start(self, simulated, nodes, level)

    monkeypatch.setattr(module.VirtualCluster, "_start", record_start)
    jobs = [Job(i, "train", f"u{i}", 0.0, WORK, 8, 1) for i in range(1, users + 1)]
    outcome = replay(jobs, Cluster(1), policy)
    last = max(record.finished for record in outcome.records)
    starts = [*began, (0, last)]
    return outcome, [Occupancy(task, at, until) for (task, at), (_, until) in pairwise(starts)]


def shares(occupancies: list[Occupancy], outcome: Outcome) -> dict[int, float]:
    """Return the seconds on the node of each task until the first task ends."""
    until = min(record.finished for record in outcome.records)
    found = {record.job.id: 0.0 for record in outcome.records}
    for occupancy in occupancies:
        found[occupancy.task] += max(0.0, min(occupancy.until, until) - occupancy.began)
    return found


def longest_wait(occupancies: list[Occupancy]) -> float:
    waits = []
    for task in {occupancy.task for occupancy in occupancies}:
        own = [occupancy for occupancy in occupancies if occupancy.task == task]
        waits += [own[0].began, *(b.began - a.until for a, b in pairwise(own))]
    return max(waits)


CASES = [
    pytest.param(users, policy, id=f"{name}-{users}")
    for name, policy in (("default", DEFAULT), ("submitted", IN_ORDER))
    for users in (2, 3, 5)
]


@pytest.mark.parametrize(("users", "policy"), CASES)
def test_equal_users_get_equal_shares(
    users: int, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, occupancies = replayed(users, policy, monkeypatch)
    got = shares(occupancies, outcome)
    fair = sum(got.values()) / users
    assert all(abs(seconds - fair) <= SLICE + GRACE for seconds in got.values())
    jain = sum(got.values()) ** 2 / users / sum(seconds**2 for seconds in got.values())
    assert jain >= 0.95
    assert len(outcome.records) == users


@pytest.mark.parametrize(("users", "policy"), CASES)
def test_no_user_waits_longer_than_the_slices_of_the_others(
    users: int, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, occupancies = replayed(users, policy, monkeypatch)
    assert longest_wait(occupancies) <= (users - 1) * (SLICE + GRACE) + 1e-6


@pytest.mark.parametrize(("users", "policy"), CASES)
def test_no_run_is_suspended_for_an_equal_before_its_minimum(
    users: int, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, occupancies = replayed(users, policy, monkeypatch)
    ends = {record.finished for record in outcome.records}
    cut = [occupancy for occupancy in occupancies if occupancy.until not in ends]
    assert all(
        occupancy.until - occupancy.began >= policy.minimum_seconds + GRACE for occupancy in cut
    )


def test_programs_that_lose_their_work_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run of a task is twice as long as the one before; otherwise equals would suspend one another for ever."""
    suspend = module.VirtualCluster._suspend

    def losing(self, simulated, decision):  # type: ignore[no-untyped-def]
        left = simulated.left
        suspend(self, simulated, decision)
        lost = simulated.task.lost_seconds + left - simulated.left
        simulated.left = left
        self._set(simulated, yields=False, lost_seconds=lost)

    monkeypatch.setattr(module.VirtualCluster, "_suspend", losing)
    jobs = [Job(i, "train", f"u{i}", 0.0, 3 * 3600.0, 8, 1) for i in (1, 2)]
    outcome = replay(jobs, Cluster(1), DEFAULT)
    assert max(record.finished for record in outcome.records) < 24 * 3600
