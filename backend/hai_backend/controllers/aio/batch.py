"""Writes several events of a task together, because all ranks of a large gang may report at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from hai_backend.domain.errors import HaiError
from hai_backend.domain.task import Task
from hai_backend.lifecycle import events as ev

Write = Callable[[int, Sequence[ev.Event]], Awaitable[Task | None]]
"""Applies events to a task; None: another replica has changed it meanwhile."""


@dataclass(eq=False, slots=True)
class PendingEvent:
    """An event that is not written yet. `result` is the task after the write, and None before."""

    event: ev.Event
    result: Task | None = None


class Batch:
    """Collects events of a task while an earlier write of the task is in progress. The next write includes them."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pending: dict[int, list[PendingEvent]] = {}  # by task

    def join(self, task_id: int, event: ev.Event) -> PendingEvent:
        """Add an event to the next write."""
        pending = PendingEvent(event)
        self._pending.setdefault(task_id, []).append(pending)
        return pending

    async def write(self, task_id: int, pending: PendingEvent) -> Task | None:
        """Return the task after the write of this event, or None if another server has changed the task.

        The caller holds the lock of the task, and calls this once for each event. The first call writes all pending
        events, and the other calls only return the result.
        """
        if pending.result is not None:
            return pending.result
        batch = self._pending.pop(task_id, [])
        batch = batch if pending in batch else [pending, *batch]
        try:
            saved = await self._write(task_id, [waiting.event for waiting in batch])
        except HaiError:  # one of the events caused it, so each is written alone
            self._put_back(task_id, [waiting for waiting in batch if waiting is not pending])
            return await self._write(task_id, (pending.event,))
        if saved is None:
            self._put_back(task_id, batch)
        for waiting in batch:
            waiting.result = saved
        return saved

    def _put_back(self, task_id: int, batch: list[PendingEvent]) -> None:
        self._pending[task_id] = [*batch, *self._pending.get(task_id, [])]
