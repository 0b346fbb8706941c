"""Turns changes of tasks into counts: what Prometheus shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hai_backend.domain.node import Node
from hai_backend.domain.task import RunState, Task, TaskState
from hai_backend.metrics.prometheus import Metrics, SuspendReason


def count(metrics: Metrics, before: Task | None, after: Task, now: float) -> None:
    """A task has changed; `before` is None when it was submitted."""
    if before is None:
        metrics.submitted(after)
        return
    if after.state is TaskState.FINISHED and before.state is not TaskState.FINISHED:
        metrics.finished(after)
    if before.waiting and after.state is TaskState.RUNNING:
        since = before.progress.queued_at
        metrics.waited(after, now - (before.created_at if since is None else since))
    if _suspending(after) and not _suspending(before):
        preempted = after.run is not None and bool(after.run.suspended_for)
        metrics.suspended(SuspendReason.PREEMPTED if preempted else SuspendReason.REQUESTED)


class TaskCounts:
    """How many tasks are in which state, kept change by change; what Prometheus shows of them and of nodes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._states: Counter[TaskState] = Counter()
        self._queue: Counter[str] = Counter()  # by node group
        self._nodes_shown = -1

    def changed(self, before: Task | None, after: Task) -> None:
        """A task has changed; `before` is None when it is new."""
        if before is not None:
            self._states[before.state] -= 1
            self._queue[before.spec.resource.group] -= before.needs_nodes
        self._states[after.state] += 1
        self._queue[after.spec.resource.group] += after.needs_nodes

    def show(self, nodes: Iterable[Node], version: int) -> None:
        """After a scheduling pass; nodes are counted again when their version has changed."""
        self._metrics.tasks(self._states)
        self._metrics.queue(self._queue)
        if version != self._nodes_shown:
            self._nodes_shown = version
            self._metrics.nodes(nodes)

    def close(self) -> None:
        """This server does not lead any more: what others lead is not shown twice."""
        self._metrics.tasks({})
        self._metrics.queue({})
        self._metrics.nodes(())


def _suspending(task: Task) -> bool:
    return task.run is not None and task.run.state is RunState.SUSPENDING
