"""Updates the Prometheus metrics when tasks change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hai_backend.domain.node import Node
from hai_backend.domain.task import RunState, Task, TaskState
from hai_backend.metrics.prometheus import Metrics, SuspendReason


def count(metrics: Metrics, before: Task | None, after: Task, now: float) -> None:
    """Count a change of a task. `before` is None if the task was just submitted."""
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
    """Counts tasks by state and by queue with each change, and sets the gauges of tasks and nodes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._states: Counter[TaskState] = Counter()
        self._queue: Counter[str] = Counter()  # by node group
        self._nodes_shown = -1

    def changed(self, before: Task | None, after: Task) -> None:
        """Update the counts. `before` is None if the task is new."""
        if before is not None:
            self._states[before.state] -= 1
            self._queue[before.spec.resource.group] -= before.needs_nodes
        self._states[after.state] += 1
        self._queue[after.spec.resource.group] += after.needs_nodes

    def show(self, nodes: Iterable[Node], version: int) -> None:
        """Set the gauges after a scheduling pass. Nodes are counted again only if their version has changed."""
        self._metrics.tasks(self._states)
        self._metrics.queue(self._queue)
        if version != self._nodes_shown:
            self._nodes_shown = version
            self._metrics.nodes(nodes)

    def close(self) -> None:
        """Reset the gauges of a server that no longer leads, because the new leader exports the same values."""
        self._metrics.tasks({})
        self._metrics.queue({})
        self._metrics.nodes(())


def _suspending(task: Task) -> bool:
    return task.run is not None and task.run.state is RunState.SUSPENDING
