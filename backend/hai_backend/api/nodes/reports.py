"""A program that has found its node broken: the node takes no more tasks, and the task starts again elsewhere."""

from __future__ import annotations

from hai_backend.api.protocols import Cluster
from hai_backend.api.request import limits
from hai_backend.controllers.tasks.executor import Applier
from hai_backend.domain.task import Task
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle import events as ev

_BELIEVED = 3
"""Runs: a task that finds every node broken is broken itself, and must not empty the cluster."""


async def blame(
    cluster: Cluster, task_manager: Applier, task: Task, key: RankKey, error: str
) -> None:
    """Cordon the node of this rank, then end the run. The node first: the next run must not get it again."""
    assert task.run is not None
    found = _line(error)
    node = cluster.nodes().get(task.run.ranks[key.rank].node)
    believed = task.node_failure_count < _BELIEVED
    if node is not None and not node.cordoned and believed:
        reason = f"reported by task {task.id}: {found}"
        await cluster.set_cordoned(node.name, True, reason[: limits.REASON_CHARS], by="agent")
    await task_manager.apply(task.id, ev.NodeReported(key.run, key.rank, found))


def _line(text: str) -> str:
    """One printable line, of a length that people read: it comes from a program."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[: limits.REASON_CHARS] or "no details given"
