"""How often the tasks of each node group lose work, counted as they change.

In memory only: a server that has just started knows what its unfinished tasks have gone through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hai_backend.domain.task import Task
from hai_backend.lifecycle.goodput import History


class Interruptions:
    """Costs a comparison for each change of a task."""

    def __init__(self) -> None:
        self._groups: dict[str, History] = {}

    def load(self, tasks: Iterable[Task]) -> None:
        """Start with what these have gone through."""
        for task in tasks:
            self.changed(None, task)

    def changed(self, before: Task | None, task: Task) -> None:
        """A task has changed; None: it is new here."""
        then, now = before.progress if before else None, task.progress
        if then is now:
            return
        losses = now.losses - (then.losses if then else 0)
        seconds = now.held_seconds - (then.held_seconds if then else 0.0)
        if losses or seconds:
            self._add(task.spec.resource.group, losses, seconds * task.node_count)

    def of(self, group: str) -> History:
        """What is known of a group."""
        return self._groups.get(group, History())

    def _add(self, group: str, losses: int, node_seconds: float) -> None:
        known = self.of(group)
        self._groups[group] = replace(
            known, losses=known.losses + losses, node_seconds=known.node_seconds + node_seconds
        )
