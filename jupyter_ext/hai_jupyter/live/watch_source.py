"""The one stream from the platform to the board, and once a list of what has finished before.

After a loss the board says so at once, and the stream goes on from the last version of the tasks; nodes are few and
begin anew.
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

UP = {"up": True, "reason": "", "message": "", "hint": "", "violations": []}


class WatchSource:
    """Keeps a board true for as long as `follow` runs."""

    def __init__(self, link: ClientProvider, board: StateStore, max_tasks: int) -> None:
        self._link = link
        self._board = board
        self._max_tasks = max_tasks
        self._client: Client | None = None
        self._past_known = False  # what has finished before was listed
        self._waits: Iterator[float] = delays()

    async def follow(self) -> None:
        """Never returns; cancel it."""
        while True:
            try:
                await self._once()
            except* HaiError as group:
                self._board.say(link={"up": False, **errors.body(_first(group))})
            raise_forgotten_cancellation()
            await asyncio.sleep(next(self._waits))

    async def _once(self) -> None:
        client = self._link.client()
        if self._client is not client:
            if self._client is not None:
                self._board.reset()
                self._past_known = False
            self._client = client
        async with asyncio.TaskGroup() as streams:
            await self._watch(client, streams)

    async def _watch(self, client: Client, streams: asyncio.TaskGroup) -> None:
        """Tasks from 0 on are unfinished ones only, so the others are listed once, after the stream has begun."""
        past_wanted = not self._past_known
        watch = client.watches.tasks_and_nodes(tasks_after=self._board.version)
        async with aclosing(watch) as answers:
            async for answer in answers:
                self._waits = delays()
                self._take(answer)
                self._board.say(link=UP)
                if past_wanted and (answer.HasField("tasks") or self._board.version > 0):
                    past_wanted = False
                    streams.create_task(self._past(client))

    def _take(self, answer: WatchResponse) -> None:
        if answer.HasField("tasks"):
            self._board.put_tasks(answer.tasks.tasks, answer.tasks.version)
        else:
            self._board.put_nodes(answer.nodes.nodes)

    async def _past(self, client: Client) -> None:
        batch = []
        tasks = client.tasks.all(filter="state:finished", view=TASK_VIEW_BASIC)
        async with aclosing(tasks) as found:
            async for task in found:
                batch.append(task)
                if len(batch) == 500:
                    self._board.put_tasks(batch)
                    batch = []
                    await asyncio.sleep(0)  # pages and other requests get their turn
                if self._board.tasks + len(batch) >= self._max_tasks:
                    break
        self._board.put_tasks(batch)
        self._past_known = True


def _first(group: BaseExceptionGroup[HaiError]) -> HaiError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
