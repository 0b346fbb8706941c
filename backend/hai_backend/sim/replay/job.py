"""Input and output of a replay. Times are seconds since the first submission of the trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hai_backend.domain.priority import Priority

Progress = Callable[[int, int, float], None]
"""Reports progress: finished jobs, all jobs, seconds on the virtual clock."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace. `duration` is its run time without interruptions, which the scheduler does not know."""

    id: int  # from 1, in order of submission
    name: str  # equal for similar jobs: the name without digits, or the virtual cluster
    user: str
    submit: float
    duration: float
    gpus: int  # of the whole gang; 0 for whole nodes without GPUs
    nodes: int  # whole nodes that the job uses if nodes are not shared
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The result of one job."""

    job: Job
    first_start: float
    finished: float
    suspensions: int = 0
    node_seconds: float = 0.0  # time on nodes including overhead; parts of nodes count as parts


@dataclass(frozen=True, slots=True)
class Usage:
    """The nodes in use from `at` on, and the nodes that all running and queued jobs request."""

    at: float
    used_nodes: float
    requested_nodes: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a replay under one policy on one cluster."""

    label: str
    nodes: int
    records: tuple[JobRecord, ...]
    usage: tuple[Usage, ...]  # in order of time, one entry per change
    pass_seconds: tuple[float, ...] = field(default=(), repr=False)
