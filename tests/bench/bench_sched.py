"""Scheduling passes from cold, with a full cluster of 1 500 nodes and ever more waiting tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import SchedTask, Snapshot, Standing
from hai_backend.sched import Policy, schedule
from tests.bench.figures import Figure

NODES, GROUPS = 1500, 5


def snapshot(waiting: int) -> Snapshot:
    """Every node is held by a HIGH task; the waiting ones are LOW, so a pass only explains."""
    nodes = tuple(Node(f"n{i}", f"g{i % GROUPS}", gpus=8) for i in range(NODES))
    running = SchedTask(
        0, "", "", 1, Priority.HIGH, 0.0, Standing.RUNNING, run_priority=Priority.HIGH
    )
    held = [
        replace(
            running,
            id=i + 1,
            user=f"u{i % 50}",
            group=n.group,
            placed=(n.name,),
            run_started_at=1.0,
        )
        for i, n in enumerate(nodes)
    ]
    queued = [
        SchedTask(10_000 + i, f"u{i % 50}", f"g{i % GROUPS}", 1 + i % 8, Priority.LOW, 10.0 + i)
        for i in range(waiting)
    ]
    return Snapshot(now=1e6, nodes=nodes, tasks=(*held, *queued))


def figures() -> Iterator[Figure]:
    for waiting in (1_000, 10_000, 100_000):
        given, times = snapshot(waiting), []
        for _ in range(5):
            began = time.perf_counter()
            schedule(given, Policy())
            times.append((time.perf_counter() - began) * 1000)
        yield Figure(f"cold pass, 1 500 nodes, {waiting} waiting, best of 5", min(times), "ms")
