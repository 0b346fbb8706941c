"""Computes the status that a browser sees while a service is not available: state, reason, and expected time."""

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
from hai_backend.api.watch.cache import BUNDLE_SECONDS
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.domain.scheduling.plan import Wait
from hai_backend.domain.task import RunState, Task, TaskState
from hai_backend.proxy.pages.html_pages import Status, texts

_EVENT_SECONDS = 15.0  # An event is sent at least this often, so that no proxy closes the stream
_BROKEN = (SERVICE_STATE_FAILED, SERVICE_STATE_STOPPED)


class Waits(Protocol):
    """The result of the last scheduling pass."""

    async def waits(self, group: str = "") -> Mapping[int, Wait]: ...


PredictStarts = Callable[[list[tuple[int, str]]], Awaitable[Mapping[int, PredictedStart]]]


class StatusPage:
    """Computes the status of a task."""

    def __init__(
        self, service_states: ServiceStates, waits: Waits, predict_starts: PredictStarts
    ) -> None:
        self._service_states = service_states
        self._waits = waits
        self._predict_starts = predict_starts

    def service(self, task: Task, name: str) -> ServiceStatus | None:
        """Return the status of a service that the agent of rank 0 reported."""
        reported = self._service_states.services(task)
        return next((s for s in reported if s.name == name and s.rank == 0), None)

    async def status(self, task: Task, service: str, language: str) -> Status:
        """Return the status for the waiting page of a service."""
        if task.state is TaskState.FINISHED:
            return _status(task, "finished", language, why=task.reason)
        if task.waiting:
            return await self._waiting_status(task, language)
        reported = self.service(task, service)
        if reported is not None and reported.state == SERVICE_STATE_READY and _is_running(task):
            return _status(task, "starting", language, ready=True)
        if reported is not None and reported.state in _BROKEN and _is_running(task):
            return _status(task, "broken", language, why=reported.message)
        if not _is_running(task):
            return _status(task, "starting", language, why=task.run.reason if task.run else "")
        return _status(
            task, "starting", language, why=reported.message if reported is not None else ""
        )

    async def _waiting_status(self, task: Task, language: str) -> Status:
        if task.held:
            return _status(task, "away", language, why=task.reason)
        group = task.spec.resource.group
        wait = (await self._waits.waits(group)).get(task.id)
        start = (await self._predict_starts([(task.id, group)])).get(task.id)
        return _status(
            task,
            "waiting",
            language,
            why=wait.message if wait else task.reason,
            place=str(wait.place) if wait and wait.place else "",
            when=_format_start(start),
        )

    async def changes(
        self, get: Callable[[], Awaitable[Task | None]], tasks: Feed, service: str, language: str
    ) -> AsyncIterator[Status | None]:
        """Yield the status now and after each change. Yield None after a timeout without a change.

        Ends when the service is ready, or when the task is no longer visible.
        """
        previous = None
        while True:
            versions = (tasks.version, self._service_states.feed.version)
            task = await get()
            if task is None:
                return
            status = await self.status(task, service, language)
            yield status if status != previous else None
            if status.ready:
                return
            previous = status
            await self._wait_for_change(tasks, *versions)
            await asyncio.sleep(BUNDLE_SECONDS)

    async def _wait_for_change(self, tasks: Feed, task_version: int, services_version: int) -> None:
        """Wait for a change of tasks or services, or a timeout."""
        waiting = {
            asyncio.ensure_future(tasks.beyond(task_version)),
            asyncio.ensure_future(self._service_states.feed.beyond(services_version)),
        }
        try:
            await asyncio.wait(waiting, timeout=_EVENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiting:
                waiter.cancel()


def _is_running(task: Task) -> bool:
    return task.run is not None and task.run.state in (RunState.RUNNING, RunState.SUSPENDING)


def _status(
    task: Task,
    key: str,
    language: str,
    *,
    why: str = "",
    place: str = "",
    when: str = "",
    ready: bool = False,
) -> Status:
    title, advice = texts(key, language, task.id)
    return Status(key, task.id, task.spec.name, title, advice, why, place, when, ready)


def _format_start(start: PredictedStart | None) -> str:
    """Format the predicted start in UTC, because the proxy does not know the time zone of the visitor."""
    if start is None or not start.HasField("p50"):
        return ""
    median = _format_time(start.p50.seconds)
    return (
        f"~{median} – {_format_time(start.p90.seconds)}" if start.HasField("p90") else f"~{median}"
    )


def _format_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M UTC")
