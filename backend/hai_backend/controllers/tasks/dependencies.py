"""Who waits for whose end. A task that has ended is told to all who wait for it, also by the next server."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any

import structlog

from hai_backend.controllers.aio.retry import insisted
from hai_backend.controllers.tasks.task_manager import TaskManager
from hai_backend.domain.errors import NotFound
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.lifecycle import events as ev

log = structlog.get_logger(__name__)
Begin = Callable[[Coroutine[Any, Any, None]], object]

_TOGETHER = 100  # are told at a time


class Dependencies:
    """Hears of each change of a task, and of those that are there at the beginning."""

    def __init__(self, task_manager: TaskManager, begin: Begin) -> None:
        self._task_manager = task_manager
        self._begin = begin
        self._waiting: defaultdict[int, set[int]] = defaultdict(set)  # by the one that goes first

    def load(self, tasks: Iterable[Task]) -> None:
        """What a server finds; some that go first may have ended unheard."""
        self._enter([(task.id, first) for task in tasks for first in task.awaited])

    def changed(self, before: Task | None, task: Task) -> None:
        """`before` is None when the task is new here."""
        if task.state is not TaskState.FINISHED:
            known = before.awaited if before is not None else ()
            self._enter([(task.id, first) for first in task.awaited if first not in known])
            return
        for first in task.awaited:
            self._leave(first, task.id)
        if task.id in self._waiting:
            self._begin(self._tell(_end(task)))

    def _enter(self, pairs: Collection[tuple[int, int]]) -> None:
        """Who waits, and for whom; of some the end is known already."""
        for task, first in pairs:
            self._waiting[first].add(task)
        for first in sorted({first for _, first in pairs} - self._task_manager.unfinished().keys()):
            self._begin(self._look_up(first))

    def _leave(self, first: int, task: int) -> None:
        if first in self._waiting:
            self._waiting[first].discard(task)
            if not self._waiting[first]:
                del self._waiting[first]

    async def _look_up(self, first: int) -> None:
        try:
            found = await insisted(partial(self._task_manager.get, first), "a look")
        except NotFound:  # nobody can know any more
            await self._tell(ev.PredecessorEnded(first, Outcome.CANCELED))
        else:
            if found.outcome is not None:
                await self._tell(_end(found))

    async def _tell(self, ended: ev.PredecessorEnded) -> None:
        """Many at a time, as they are written together; whoever comes meanwhile is told as well."""
        while some := sorted(self._waiting.get(ended.task, ()))[:_TOGETHER]:
            for task in some:
                self._leave(ended.task, task)
            await asyncio.gather(*(self._tell_one(task, ended) for task in some))

    async def _tell_one(self, task: int, ended: ev.PredecessorEnded) -> None:
        """One that is odd keeps no other from being told."""
        try:
            await self._task_manager.insist(task, ended)
        except Exception as error:
            what = "a task could not be told of the end of one that goes first"
            log.error(what, task=task, first=ended.task, error=repr(error))


def _end(task: Task) -> ev.PredecessorEnded:
    assert task.outcome is not None
    return ev.PredecessorEnded(task.id, task.outcome, task.awaited)
