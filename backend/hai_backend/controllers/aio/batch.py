"""Events of ranks that are written together: a gang of a thousand ranks leaves in a few writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from hai_backend.domain.errors import HaiError
from hai_backend.domain.task import Task
from hai_backend.lifecycle import events as ev

Write = Callable[[int, Sequence[ev.Event]], Awaitable[Task | None]]
"""Let events happen to a task; None: another replica was faster."""


@dataclass(eq=False, slots=True)
class Waiting:
    """An event that waits for its turn; `answer` is the task once it was written."""

    event: ev.Event
    answer: Task | None = None


class Batch:
    """While one write of a task is under way, what its ranks say gathers for the next."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: dict[int, list[Waiting]] = {}  # by task

    def join(self, task_id: int, event: ev.Event) -> Waiting:
        """Wait with the others."""
        mine = Waiting(event)
        self._waiting.setdefault(task_id, []).append(mine)
        return mine

    async def write(self, task_id: int, mine: Waiting) -> Task | None:
        """To be called by each of them in turn: whoever comes first writes for all that wait."""
        if mine.answer is not None:
            return mine.answer
        batch = self._waiting.pop(task_id, [])
        batch = batch if mine in batch else [mine, *batch]
        try:
            saved = await self._write(task_id, [waiting.event for waiting in batch])
        except HaiError:  # of which one? Each is tried by itself
            self._wait_again(task_id, [waiting for waiting in batch if waiting is not mine])
            return await self._write(task_id, (mine.event,))
        if saved is None:
            self._wait_again(task_id, batch)
        for waiting in batch:
            waiting.answer = saved
        return saved

    def _wait_again(self, task_id: int, batch: list[Waiting]) -> None:
        self._waiting[task_id] = [*batch, *self._waiting.get(task_id, [])]
