"""A small engine that replaces the production engine, and input files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.priority import Priority
from hai_backend.scheduler.policy.policy import Policy
from hai_backend.sim.cli.engine import Engine
from hai_backend.sim.replay.job import Job, JobRecord, Outcome, Progress, Usage
from hai_backend.sim.report.metrics import metrics
from hai_backend.sim.report.results import Result

HEADER = (
    "job_id,user,group_or_vc,submit_s,duration_s,gpus,nodes_8gpu,cpus,final_state,priority,"
    "user_synth,priority_synth"
)


class Fakes:
    """Runs jobs one after the other, and records its calls."""

    def __init__(self) -> None:
        self.replays: list[tuple[int, tuple[int, int, bool], Policy, str]] = []
        self.timed: list[Mapping[str, int]] = []

    def engine(self) -> Engine:
        return Engine(self.replay, lambda *facts: facts, self.time_passes, self.policy)

    def replay(
        self, jobs: Sequence[Job], cluster: Any, policy: Policy, *, label: str, progress: Progress
    ) -> Outcome:
        self.replays.append((len(jobs), cluster, policy, label))
        outcome = one_by_one(jobs, nodes=cluster[0], label=label)
        progress(len(jobs), len(jobs), outcome.usage[-1].at)
        return outcome

    def time_passes(self, settings: Mapping[str, int]) -> Mapping[str, Any]:
        self.timed.append(settings)
        return {"cold_s": 0.5, "steady_p50_ms": 2.0, "steady_p99_ms": 9.0}

    def policy(self, found: Mapping[str, Any], where: str) -> Policy:
        if "restart_seconds" not in found:
            raise Invalid((Violation(where, f"no such setting {next(iter(found))}"),))
        return Policy(restart_seconds=float(found["restart_seconds"]))


def one_by_one(
    jobs: Sequence[Job], nodes: int, label: str, overhead: float = 0.0, suspensions: int = 0
) -> Outcome:
    """Run each job after the one before it has ended."""
    now, records, usage = 0.0, [], []
    for i, job in enumerate(jobs):
        now = max(now, job.submit)
        finish = now + job.duration + overhead
        waiting = sum(other.nodes for other in jobs[i + 1 :] if other.submit <= now)
        usage.append(Usage(now, job.nodes, job.nodes + waiting))
        held = (job.duration + overhead) * job.nodes
        records.append(JobRecord(job, now, finish, suspensions, held))
        now = finish
    return Outcome(label, nodes, tuple(records), (*usage, Usage(now, 0, 0)), (0.001, 0.003))


def job(id: int, submit: float, duration: float, **more: Any) -> Job:
    """Return a job of one node and one user, with changes."""
    facts = {"name": "train", "user": "u", "gpus": 8, "nodes": 1, "priority": Priority.NORMAL}
    return Job(id=id, submit=submit, duration=duration, **{**facts, **more})


@pytest.fixture
def fakes() -> Fakes:
    return Fakes()


@pytest.fixture(scope="session")
def make_job() -> Callable[..., Job]:
    return job


@pytest.fixture(scope="session")
def serial() -> Callable[..., Outcome]:
    return one_by_one


@pytest.fixture
def csv(tmp_path: Path) -> Callable[..., Path]:
    """Writes lines under the header of our CSV."""

    def write(*lines: str, name: str = "jobs.csv", header: str = HEADER) -> Path:
        path = tmp_path / name
        path.write_text("\n".join((header, *lines)) + "\n")
        return path

    return write


@pytest.fixture
def result() -> Callable[..., Result]:
    """A replay of four jobs of two users with its figures."""

    def make(
        label: str, *, overhead: float = 0.0, suspensions: int = 0, levels: bool = True
    ) -> Result:
        high = Priority.HIGH if levels else Priority.NORMAL
        jobs = [
            job(1, 0, 3600, user="a"),
            job(2, 60, 30, user="b", nodes=2, gpus=16, priority=high),
            job(3, 120, 7200, user="a"),
            job(4, 90000, 600, user="b", priority=high),
        ]
        outcome = one_by_one(jobs, 2, label, overhead, suspensions)
        return Result("jobs.csv", label, outcome, metrics(outcome))

    return make
