"""Notifies tasks when their dependencies end, and after a start also of those that ended while no server ran."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any

import structlog

from hai_backend.controllers.aio.retry import retry_until_stored
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.errors import NotFound
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.lifecycle import events as ev

log = structlog.get_logger(__name__)
Begin = Callable[[Coroutine[Any, Any, None]], object]

_BATCH_SIZE = 100  # tasks that are notified concurrently


class Dependencies:
    """Records which tasks wait for which other tasks. `load` is called once, then `changed` for every change."""

    def __init__(self, task_manager: TaskManager, begin: Begin) -> None:
        self._task_manager = task_manager
        self._begin = begin
        self._waiting: defaultdict[int, set[int]] = defaultdict(set)  # waiting tasks by dependency

    def load(self, tasks: Iterable[Task]) -> None:
        """Register all unfinished tasks at the start. Some of their dependencies may already have ended."""
        self._register([(task.id, first) for task in tasks for first in task.awaited])

    def changed(self, before: Task | None, task: Task) -> None:
        """Register the dependencies of a task, or notify the waiting tasks if it has finished.

        `before` is None if the task is new.
        """
        if task.state is not TaskState.FINISHED:
            known = before.awaited if before is not None else ()
            self._register([(task.id, first) for first in task.awaited if first not in known])
            return
        for first in task.awaited:
            self._unregister(first, task.id)
        if task.id in self._waiting:
            self._begin(self._notify(_end(task)))

    def _register(self, pairs: Collection[tuple[int, int]]) -> None:
        """Register pairs of a waiting task and a dependency, and look up dependencies that may have ended."""
        for task, first in pairs:
            self._waiting[first].add(task)
        for first in sorted({first for _, first in pairs} - self._task_manager.unfinished().keys()):
            self._begin(self._look_up(first))

    def _unregister(self, first: int, task: int) -> None:
        if first in self._waiting:
            self._waiting[first].discard(task)
            if not self._waiting[first]:
                del self._waiting[first]

    async def _look_up(self, first: int) -> None:
        try:
            found = await retry_until_stored(
                partial(self._task_manager.get, first), "reading a dependency"
            )
        except NotFound:  # the dependency was deleted, so its outcome is unknown
            await self._notify(ev.PredecessorEnded(first, Outcome.CANCELED))
        else:
            if found.outcome is not None:
                await self._notify(_end(found))

    async def _notify(self, ended: ev.PredecessorEnded) -> None:
        """Notify all waiting tasks in batches, including those that are registered meanwhile."""
        while some := sorted(self._waiting.get(ended.task, ()))[:_BATCH_SIZE]:
            for task in some:
                self._unregister(ended.task, task)
            await asyncio.gather(*(self._notify_one(task, ended) for task in some))

    async def _notify_one(self, task: int, ended: ev.PredecessorEnded) -> None:
        """Notify one task. Errors are only logged, so that the other tasks are notified."""
        try:
            await self._task_manager.apply_when_stored(task, ended)
        except Exception as error:
            message = "a task could not be notified of the end of a dependency"
            log.error(message, task=task, first=ended.task, error=repr(error))


def _end(task: Task) -> ev.PredecessorEnded:
    assert task.outcome is not None
    return ev.PredecessorEnded(task.id, task.outcome, task.awaited)
