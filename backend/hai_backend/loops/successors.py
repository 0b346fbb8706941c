"""Who waits for whose end. A task that has ended is told to all who wait for it, also by the next server."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from hai_backend.domain.errors import NotFound
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.loops.insisting import insisted
from hai_backend.loops.ledger import Ledger
from hai_backend.tasks import events as ev

Begin = Callable[[Coroutine[Any, Any, None]], object]

_TOGETHER = 100  # are told at a time


class Successors:
    """Hears of each change of a task, and of those that are there at the beginning."""

    def __init__(self, ledger: Ledger, begin: Begin) -> None:
        self._ledger = ledger
        self._begin = begin
        self._waiting: defaultdict[int, set[int]] = defaultdict(set)  # by the one that goes first

    def load(self, tasks: Iterable[Task]) -> None:
        """What a server finds; some that go first may have ended unheard."""
        firsts = {first for task in list(tasks) for first in self._enter(task)}
        for first in sorted(firsts):
            self._begin(self._look_up(first))

    def changed(self, before: Task | None, task: Task) -> None:
        """`before` is None when the task is new here."""
        if before is None:
            self.load([task])
        if task.state is TaskState.FINISHED and task.outcome is not None:
            for first in task.awaited:
                self._leave(first, task.id)
            if task.id in self._waiting:
                self._begin(self._tell(task.id, task.outcome))

    def _enter(self, task: Task) -> list[int]:
        """Whom it waits for in vain: they have ended."""
        for first in task.awaited:
            self._waiting[first].add(task.id)
        return [first for first in task.awaited if first not in self._ledger.unfinished()]

    def _leave(self, first: int, task: int) -> None:
        if first in self._waiting:
            self._waiting[first].discard(task)
            if not self._waiting[first]:
                del self._waiting[first]

    async def _look_up(self, first: int) -> None:
        try:
            outcome = (await insisted(partial(self._ledger.get, first), "a look")).outcome
        except NotFound:  # nobody can know any more
            outcome = Outcome.CANCELED
        if outcome is not None:
            await self._tell(first, outcome)

    async def _tell(self, first: int, outcome: Outcome) -> None:
        """Many at a time, as they are written together; whoever comes meanwhile is told as well."""
        ended = ev.PredecessorEnded(first, outcome)
        while some := sorted(self._waiting.get(first, ()))[:_TOGETHER]:
            for task in some:
                self._leave(first, task)
            await asyncio.gather(*(self._ledger.insist(task, ended) for task in some))
