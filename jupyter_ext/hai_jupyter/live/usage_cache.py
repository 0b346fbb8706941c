"""Caches the current use of tasks for list columns: one request at a time, however many pages show them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from hai.client.client import Client
from hai.client.errors import HaiError
from hai_jupyter.live.usage import Row, numbers

_FRESH_SECONDS = 15.0
_LOOKBACK = timedelta(minutes=3)  # the finest steps are minutes, and the newest is not full
_MAX_TASKS = 1000

Known = Awaitable[Row | None]


class UsageCache:
    """The newest sample of each task, summed over its ranks."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._requests: dict[int, tuple[float, asyncio.Future[Row | None]]] = {}

    async def now(self, client: Client, ids: Sequence[int]) -> dict[int, Row]:
        """Use by task, without tasks that have no sample."""
        rows = await asyncio.gather(*(self._one(client, id) for id in ids))
        return {id: row for id, row in zip(ids, rows, strict=True) if row is not None}

    def _one(self, client: Client, id: int) -> asyncio.Future[Row | None]:
        """The request of a task, shared while it is fresh."""
        requested_at, request = self._requests.get(id, (-_FRESH_SECONDS, None))
        now = self._monotonic()
        if request is None or now - requested_at >= _FRESH_SECONDS:
            if len(self._requests) >= _MAX_TASKS:
                self._requests.clear()
            request = asyncio.ensure_future(_newest(client, id))
            self._requests[id] = (now, request)
        return asyncio.shield(request)


async def _newest(client: Client, id: int) -> Row | None:
    try:
        start = datetime.now(UTC) - _LOOKBACK
        found = await client.usage.of_task(id, start=start, sum=True)
    except HaiError:  # the list goes on without
        return None
    return numbers(found.sum[-1]) if found.sum else None
