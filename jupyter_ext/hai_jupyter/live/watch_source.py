"""Feeds the store from the watch stream of the server, and lists finished tasks once.

After a lost connection the store reports it at once, and the stream resumes from the last version of the tasks; the few
nodes are sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

from hai.client.client import Client
from hai.client.connection.backoff import delays
from hai.client.connection.cancellation import raise_forgotten_cancellation
from hai.client.errors import HaiError
from hai.v1.task_service_pb2 import TASK_VIEW_BASIC
from hai.v1.watch_service_pb2 import WatchResponse
from hai_jupyter import errors
from hai_jupyter.client_provider import ClientProvider
from hai_jupyter.live.state_store import StateStore

_BATCH_TASKS = 500
_LINK_UP = {"up": True, "reason": "", "message": "", "hint": "", "violations": []}


class WatchSource:
    """Keeps a store up to date while `follow` runs."""

    def __init__(self, provider: ClientProvider, store: StateStore, max_tasks: int) -> None:
        self._provider = provider
        self._store = store
        self._max_tasks = max_tasks
        self._client: Client | None = None
        self._finished_listed = False
        self._retry_delays: Iterator[float] = delays()

    async def follow(self) -> None:
        """Update the store until cancelled."""
        while True:
            try:
                await self._follow_once()
            except* HaiError as group:
                self._store.set_facts(link={"up": False, **errors.body(_first(group))})
            raise_forgotten_cancellation()
            await asyncio.sleep(next(self._retry_delays))

    async def _follow_once(self) -> None:
        client = self._provider.client()
        if self._client is not client:
            if self._client is not None:
                self._store.reset()
                self._finished_listed = False
            self._client = client
        async with asyncio.TaskGroup() as streams:
            await self._watch(client, streams)

    async def _watch(self, client: Client, streams: asyncio.TaskGroup) -> None:
        """Follow the watch. A stream from version 0 has only unfinished tasks, so the finished ones are listed once."""
        list_finished = not self._finished_listed
        watch = client.watches.tasks_and_nodes(tasks_after=self._store.version)
        async with aclosing(watch) as responses:
            async for response in responses:
                self._retry_delays = delays()
                self._apply(response)
                self._store.set_facts(link=_LINK_UP)
                if list_finished and (response.HasField("tasks") or self._store.version > 0):
                    list_finished = False
                    streams.create_task(self._list_finished(client))

    def _apply(self, response: WatchResponse) -> None:
        if response.HasField("tasks"):
            self._store.put_tasks(response.tasks.tasks, response.tasks.version)
        else:
            self._store.put_nodes(response.nodes.nodes)

    async def _list_finished(self, client: Client) -> None:
        batch = []
        tasks = client.tasks.all(filter="state:finished", view=TASK_VIEW_BASIC)
        async with aclosing(tasks) as pages:
            async for task in pages:
                batch.append(task)
                if len(batch) == _BATCH_TASKS:
                    self._store.put_tasks(batch)
                    batch = []
                    await asyncio.sleep(0)  # lets other requests run
                if self._store.task_count + len(batch) >= self._max_tasks:
                    break
        self._store.put_tasks(batch)
        self._finished_listed = True


def _first(group: BaseExceptionGroup[HaiError]) -> HaiError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
