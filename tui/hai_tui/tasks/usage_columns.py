"""What tasks use just now, told by what is measured on their nodes: optional columns of the list of tasks.

On a node that several tasks share nobody can say whose the numbers are, so nothing is said.
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
    """The newest answer of the server, and which nodes one task has for itself."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeUsage] = {}
        self._tenants: Counter[str] = Counter()

    def take(self, nodes: Iterable[NodeUsage], tasks: Iterable[Task]) -> None:
        """What is used on nodes, and all tasks that are known."""
        self._nodes = {use.node: use for use in nodes}
        self._tenants = Counter(node for task in tasks for node in _nodes_of(task))

    def of(self, task: Task) -> list[NodeUsage]:
        """Of each node that was measured; none where another task is on one of them."""
        nodes = _nodes_of(task)
        if any(self._tenants[node] > 1 for node in nodes):
            return []
        return [self._nodes[node] for node in nodes if node in self._nodes]

    def cells(self) -> dict[str, Callable[[Task, float], str]]:
        """By the key of their column."""
        return {
            "gpu_use": lambda task, now: _gpus(self.of(task)),
            "gpu_memory": lambda task, now: _bytes(
                use.gpu_memory_bytes for use in self.of(task) if use.HasField("gpu_utilisation")
            ),
            "cpu_use": lambda task, now: _cpus(self.of(task)),
            "memory_use": lambda task, now: _bytes(use.memory_bytes for use in self.of(task)),
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
