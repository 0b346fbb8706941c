"""The figures of a replay, by the definitions of the reference simulator with which published results are compared.

wait          JCT (submission to end) minus the pure run time: queueing, suspended time and overhead
slowdown      max(1, JCT / max(run time, 10 min)); because of the bound, very short jobs do not dominate the mean
occupancy     node-time in use until the last submission, divided by the capacity until then
saturation    node-time in use, divided by the node-time that could be used: min(capacity, requested nodes) over the
              whole replay; 1 if no node was idle while a job waited for it
useful share  node-time of work, divided by the node-time in use; the rest is lost to suspending and resuming
Jain          Jain's index over users of work / (JCT x nodes of all jobs). A user whose jobs always ran has 1. The index
              is 1 if all users are slowed down alike, and 1/users if only one user is served
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean

from hai_backend.domain.priority import LEVELS
from hai_backend.sim.replay.job import Job, JobRecord, Outcome, Usage

HOUR = 3600.0
_SHORT = 600.0
"""Jobs shorter than this count as so long in the slowdown."""


def metrics(
    outcome: Outcome, *, gpus_per_node: int = 8, packed: bool = False
) -> dict[str, float | dict[str, float]]:
    """Return all figures of a replay, in hours unless the name says otherwise."""
    records = outcome.records
    size = sizes(records, gpus_per_node, packed)
    return {
        "jobs": len(records),
        "nodes": outcome.nodes,
        **_spread("jct", [jct(record) / HOUR for record in records]),
        **_spread("wait", [wait(record) / HOUR for record in records]),
        "first_wait_mean_h": _mean(f.first_start - f.job.submit for f in records) / HOUR,
        "slowdown_mean": _mean(slowdown(record) for record in records),
        **_capacity(outcome),
        **_work(records, size),
        "suspensions": sum(record.suspensions for record in records),
        "suspensions_per_job": _mean(record.suspensions for record in records),
        "suspensions_max": max((record.suspensions for record in records), default=0),
        "makespan_h": end(records) / HOUR,
        "jain": jain(list(user_shares(records, size).values())),
        "wait_by_priority_h": _wait_by_priority(records),
        "pass_p50_ms": 1e3 * percentile(sorted(outcome.pass_seconds), 50),
        "pass_p99_ms": 1e3 * percentile(sorted(outcome.pass_seconds), 99),
    }


def jct(record: JobRecord) -> float:
    """Return the seconds from submission to end."""
    return record.finished - record.job.submit


def wait(record: JobRecord) -> float:
    """Return the seconds in which a job existed without progress."""
    return jct(record) - record.job.duration


def slowdown(record: JobRecord) -> float:
    """Return the bounded slowdown of a job."""
    return max(1.0, jct(record) / max(record.job.duration, _SHORT))


def end(records: Sequence[JobRecord]) -> float:
    """Return when the last job has ended."""
    return max((record.finished for record in records), default=0.0)


def percentile(ascending: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated between the two nearest values as numpy does; 0 if there are no values."""
    if not ascending:
        return 0.0
    position = (len(ascending) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (ascending[high] - ascending[low]) * (position - low)


def sizes(records: Sequence[JobRecord], gpus_per_node: int, packed: bool) -> list[float]:
    """Return the number of nodes of each job. On packed clusters, parts of nodes count as parts."""
    return [_size(record.job, gpus_per_node, packed) for record in records]


def user_shares(records: Sequence[JobRecord], size: Sequence[float]) -> dict[str, float]:
    """Return for each user the fraction of the node-time of the user's jobs in which they made progress."""
    work_node_seconds: defaultdict[str, float] = defaultdict(float)
    job_node_seconds: defaultdict[str, float] = defaultdict(float)
    for record, nodes in zip(records, size, strict=True):
        work_node_seconds[record.job.user] += record.job.duration * nodes
        job_node_seconds[record.job.user] += jct(record) * nodes
    return {
        user: work_node_seconds[user] / total
        for user, total in job_node_seconds.items()
        if total > 0
    }


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index, which is 1 if all values are equal."""
    most = max(shares, default=0.0)
    if not most:
        return 1.0
    parts = [share / most for share in shares]  # squares of tiny shares would vanish
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts))


def lost(records: Sequence[JobRecord], size: Sequence[float]) -> float:
    """Return the node-seconds in use without progress."""
    return sum(f.node_seconds - f.job.duration * n for f, n in zip(records, size, strict=True))


def _size(job: Job, gpus_per_node: int, packed: bool) -> float:
    return job.gpus / gpus_per_node if packed and job.gpus else job.nodes


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return fmean(found) if found else 0.0


def _spread(name: str, values: Iterable[float]) -> dict[str, float]:
    ascending = sorted(values)
    points = {f"{name}_p{p}_h": percentile(ascending, p) for p in (50, 95, 99)}
    return {f"{name}_mean_h": _mean(ascending), **points}


def _capacity(outcome: Outcome) -> dict[str, float]:
    """Return how much of the cluster was in use. If all jobs came at once, this counts until the end."""
    finish = end(outcome.records)
    last = max((record.job.submit for record in outcome.records), default=0.0) or finish
    held = held_until_last = attainable = 0.0
    for use, until in _stretches(outcome, finish):
        held += use.used_nodes * (until - use.at)
        held_until_last += use.used_nodes * max(0.0, min(until, last) - use.at)
        attainable += min(outcome.nodes, use.requested_nodes) * (until - use.at)
    capacity = outcome.nodes * last
    return {
        "occupancy": held_until_last / capacity if capacity else 0.0,
        "saturation": held / attainable if attainable else 1.0,
    }


def _stretches(outcome: Outcome, finish: float) -> Iterable[tuple[Usage, float]]:
    """Yield each usage with the time until which it holds."""
    yield from ((a, b.at) for a, b in pairwise(outcome.usage))
    if outcome.usage:
        yield outcome.usage[-1], max(finish, outcome.usage[-1].at)


def _work(records: Sequence[JobRecord], size: Sequence[float]) -> dict[str, float]:
    held = sum(record.node_seconds for record in records)
    waste = lost(records, size)
    return {
        "useful_share": 1 - waste / held if held else 1.0,
        "lost_node_hours": waste / HOUR,
    }


def _wait_by_priority(records: Sequence[JobRecord]) -> dict[str, float]:
    present = {record.job.priority for record in records}
    return {
        level.name: _mean(wait(f) for f in records if f.job.priority is level) / HOUR
        for level in LEVELS
        if level in present
    }
