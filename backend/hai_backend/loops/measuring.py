"""Turns changes of tasks into counts: what Prometheus shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hai_backend.domain.node import Node
from hai_backend.domain.task import RunState, Task, TaskState
from hai_backend.metrics.prometheus import Metrics


def count(metrics: Metrics, before: Task | None, after: Task, now: float) -> None:
    """A task has changed; `before` is None when it was submitted."""
    if before is None:
        metrics.submitted(after)
        return
    if after.state is TaskState.FINISHED and before.state is not TaskState.FINISHED:
        metrics.finished(after)
    if before.waiting and after.state is TaskState.RUNNING:
        since = before.run.ended_at if before.run else None
        metrics.waited(after, now - (since or before.created_at))
    if _suspending(after) and not _suspending(before):
        metrics.suspended("preempted" if after.run and after.run.suspended_for else "asked")


def gauge(metrics: Metrics, tasks: Iterable[Task], nodes: Iterable[Node]) -> None:
    """How things stand after a scheduling pass."""
    metrics.tasks(Counter(t.state for t in tasks))
    metrics.nodes(nodes)


def _suspending(task: Task) -> bool:
    return task.run is not None and task.run.state is RunState.SUSPENDING
