"""Optional columns of the task list: the current use of the nodes that a task has for itself.

If several tasks share a node, its usage belongs to none of them, so their columns stay empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hai.client.text.formatting import size_text

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task
    from hai.v1.usage_service_pb2 import NodeUsage

_RUNNING = 2  # TASK_STATE_RUNNING, without loading protobuf before the first paint
_NONE = "-"


class TaskUsage:
    """The newest usage of all nodes, and the number of tasks on each."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeUsage] = {}
        self._tenant_counts: Counter[str] = Counter()

    def update(self, nodes: Iterable[NodeUsage], tasks: Iterable[Task]) -> None:
        """Replace the usage of nodes and the list of tasks."""
        self._nodes = {use.node: use for use in nodes}
        self._tenant_counts = Counter(node for task in tasks for node in _nodes_of(task))

    def node_usages(self, task: Task) -> list[NodeUsage]:
        """Return the usage of each measured node of a task; empty if it shares one of its nodes."""
        nodes = _nodes_of(task)
        if any(self._tenant_counts[node] > 1 for node in nodes):
            return []
        return [self._nodes[node] for node in nodes if node in self._nodes]

    def cells(self) -> dict[str, Callable[[Task, float], str]]:
        """Return a function for each column, which returns the text of a cell."""
        return {
            "gpu_use": lambda task, now: _gpus(self.node_usages(task)),
            "gpu_memory": lambda task, now: _bytes(
                use.gpu_memory_bytes
                for use in self.node_usages(task)
                if use.HasField("gpu_utilisation")
            ),
            "cpu_use": lambda task, now: _cpus(self.node_usages(task)),
            "memory_use": lambda task, now: _bytes(
                use.memory_bytes for use in self.node_usages(task)
            ),
        }


def _nodes_of(task: Task) -> set[str]:
    return {rank.node for rank in task.run.ranks if rank.node} if task.state == _RUNNING else set()


def _gpus(uses: Iterable[NodeUsage]) -> str:
    measured = [use.gpu_utilisation for use in uses if use.HasField("gpu_utilisation")]
    return f"{sum(measured) / len(measured):.0%}" if measured else _NONE


def _cpus(uses: list[NodeUsage]) -> str:
    return f"{sum(use.cpus for use in uses):.1f}" if uses else _NONE


def _bytes(values: Iterable[int]) -> str:
    measured = list(values)
    return size_text(sum(measured)) if measured else _NONE
