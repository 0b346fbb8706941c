"""What is told to a browser whose task cannot be shown just now: how it is, why, and when it will be back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from hai.v1.container_pb2 import (
    SERVICE_STATE_FAILED,
    SERVICE_STATE_READY,
    SERVICE_STATE_STOPPED,
    ServiceStatus,
)
from hai.v1.task_pb2 import PredictedStart
from hai_backend.api.protocols import Feed
from hai_backend.api.tasks.watch import BUNDLE_SECONDS
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.task import RunState, Task, TaskState
from hai_backend.proxy.pages import Status, texts

# something is said at least this often, so that nothing between cuts the stream
_EVENT_SECONDS = 15.0
_BROKEN = (SERVICE_STATE_FAILED, SERVICE_STATE_STOPPED)


class Waits(Protocol):
    """The answer of the last scheduling pass."""

    async def waits(self, group: str = "") -> Mapping[int, Wait]: ...


Starts = Callable[[list[tuple[int, str]]], Awaitable[Mapping[int, PredictedStart]]]


class StatusPage:
    """Looks at a task and says it in words."""

    def __init__(self, board: ServiceStates, waits: Waits, starts: Starts) -> None:
        self._board = board
        self._waits = waits
        self._starts = starts

    def service(self, task: Task, name: str) -> ServiceStatus | None:
        """What rank 0's agent says of a service."""
        told = self._board.services(task)
        return next((s for s in told if s.name == name and s.rank == 0), None)

    async def status(self, task: Task, service: str, speech: str) -> Status:
        """For the page in front of a service."""
        if task.state is TaskState.FINISHED:
            return _status(task, "finished", speech, why=task.reason)
        if task.waiting:
            return await self._waiting(task, speech)
        told = self.service(task, service)
        if told is not None and told.state == SERVICE_STATE_READY and _runs(task):
            return _status(task, "starting", speech, ready=True)
        if told is not None and told.state in _BROKEN and _runs(task):
            return _status(task, "broken", speech, why=told.message)
        if not _runs(task):
            return _status(task, "starting", speech, why=task.run.reason if task.run else "")
        return _status(task, "starting", speech, why=told.message if told is not None else "")

    async def _waiting(self, task: Task, speech: str) -> Status:
        if task.held:
            return _status(task, "away", speech, why=task.reason)
        group = task.spec.resource.group
        wait = (await self._waits.waits(group)).get(task.id)
        start = (await self._starts([(task.id, group)])).get(task.id)
        return _status(
            task,
            "waiting",
            speech,
            why=wait.message if wait else task.reason,
            place=str(wait.place) if wait and wait.place else "",
            when=_when(start),
        )

    async def changes(
        self, get: Callable[[], Awaitable[Task | None]], tasks: Feed, service: str, speech: str
    ) -> AsyncIterator[Status | None]:
        """The status, and again whenever it is another one (None: still the same).

        Ends when the service is there, or the task may not be seen any more.
        """
        last = None
        while True:
            seen = (tasks.version, self._board.feed.version)
            task = await get()
            if task is None:
                return
            status = await self.status(task, service, speech)
            yield status if status != last else None
            if status.ready:
                return
            last = status
            await self._changed(tasks, *seen)
            await asyncio.sleep(BUNDLE_SECONDS)

    async def _changed(self, tasks: Feed, task_version: int, board_version: int) -> None:
        """Something has changed somewhere, or nothing for a while."""
        waiting = {
            asyncio.ensure_future(tasks.beyond(task_version)),
            asyncio.ensure_future(self._board.feed.beyond(board_version)),
        }
        try:
            await asyncio.wait(waiting, timeout=_EVENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()


def _runs(task: Task) -> bool:
    return task.run is not None and task.run.state in (RunState.RUNNING, RunState.SUSPENDING)


def _status(
    task: Task,
    key: str,
    speech: str,
    *,
    why: str = "",
    place: str = "",
    when: str = "",
    ready: bool = False,
) -> Status:
    title, advice = texts(key, speech, task.id)
    return Status(key, task.id, task.spec.name, title, advice, why, place, when, ready)


def _when(start: PredictedStart | None) -> str:
    """In UTC: the proxy does not know the visitor's clock."""
    if start is None or not start.HasField("p50"):
        return ""
    middle = _clock(start.p50.seconds)
    return f"~{middle} – {_clock(start.p90.seconds)}" if start.HasField("p90") else f"~{middle}"


def _clock(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M UTC")
