"""Who waits for whose end. A task that has ended is told to all who wait for it, also by the next server."""

from __future__ import annotations

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


class Successors:
    """Hears of each change of a task, and of those that are there at the beginning."""

    def __init__(self, ledger: Ledger, begin: Begin) -> None:
        self._ledger = ledger
        self._begin = begin
        self._waiting: defaultdict[int, set[int]] = defaultdict(set)  # by the one that goes first

    def load(self, tasks: Iterable[Task]) -> None:
        """What a server finds; some that go first may have ended unheard."""
        for task in list(tasks):
            self.changed(None, task)

    def changed(self, before: Task | None, task: Task) -> None:
        """`before` is None when the task is new here."""
        if task.awaited and before is None:
            self._enter(task)
        if task.state is TaskState.FINISHED and task.outcome is not None:
            for first in task.awaited:
                self._leave(first, task.id)
            if waiting := self._waiting.pop(task.id, None):
                self._begin(self._tell(task.id, task.outcome, sorted(waiting)))

    def _enter(self, task: Task) -> None:
        for first in task.awaited:
            self._waiting[first].add(task.id)
        ended = [first for first in task.awaited if first not in self._ledger.unfinished()]
        if ended:
            self._begin(self._look_up(ended, task.id))

    def _leave(self, first: int, task: int) -> None:
        if first in self._waiting:
            self._waiting[first].discard(task)
            if not self._waiting[first]:
                del self._waiting[first]

    async def _look_up(self, ended: Iterable[int], task: int) -> None:
        for first in ended:
            try:
                outcome = (await insisted(partial(self._ledger.get, first), "a look")).outcome
            except NotFound:  # nobody can know any more
                outcome = Outcome.CANCELED
            if outcome is not None:
                await self._tell(first, outcome, (task,))

    async def _tell(self, first: int, outcome: Outcome, waiting: Iterable[int]) -> None:
        for task in waiting:
            await self._ledger.insist(task, ev.PredecessorEnded(first, outcome))
