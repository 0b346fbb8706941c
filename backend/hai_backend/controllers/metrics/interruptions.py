"""Counts how often the tasks of each node group lose work.

The counts are only in memory. After a start, they contain the losses of unfinished tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hai_backend.domain.task import Task
from hai_backend.lifecycle.goodput import History


class Interruptions:
    """The losses of each node group. `load` is called once, then `changed` for every change of a task."""

    def __init__(self) -> None:
        self._groups: dict[str, History] = {}

    def load(self, tasks: Iterable[Task]) -> None:
        """Count the past losses of these tasks."""
        for task in tasks:
            self.changed(None, task)

    def changed(self, before: Task | None, task: Task) -> None:
        """Count the losses of a change. `before` is None if the task is new."""
        then, now = before.progress if before else None, task.progress
        if then is now:
            return
        losses = now.losses - (then.losses if then else 0)
        seconds = now.held_seconds - (then.held_seconds if then else 0.0)
        if losses or seconds:
            self._add(task.spec.resource.group, losses, seconds * task.node_count)

    def of(self, group: str) -> History:
        """Return the losses of a node group. They are zero if nothing is known."""
        return self._groups.get(group, History())

    def _add(self, group: str, losses: int, node_seconds: float) -> None:
        known = self.of(group)
        self._groups[group] = replace(
            known, losses=known.losses + losses, node_seconds=known.node_seconds + node_seconds
        )
