"""What tasks use just now, for the columns of lists: asked once a while, however many pages show them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from hai.client.client import Client
from hai.client.errors import HaiError
from hai_jupyter.live.usage import Row, numbers

_FRESH_SECONDS = 15.0
_LOOK_BACK = timedelta(minutes=3)  # the finest steps are minutes, and the newest is not full
_REMEMBERED = 1000

Known = Awaitable[Row | None]


class UsageCache:
    """Of a task the newest moment that was measured, all ranks together."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._asked: dict[int, tuple[float, asyncio.Future[Row | None]]] = {}

    async def now(self, client: Client, ids: Sequence[int]) -> dict[int, Row]:
        """By task; those of which nothing is known are left out."""
        rows = await asyncio.gather(*(self._one(client, id) for id in ids))
        return {id: row for id, row in zip(ids, rows, strict=True) if row is not None}

    def _one(self, client: Client, id: int) -> asyncio.Future[Row | None]:
        """What was asked a moment ago, by whomever."""
        at, asked = self._asked.get(id, (-_FRESH_SECONDS, None))
        now = self._monotonic()
        if asked is None or now - at >= _FRESH_SECONDS:
            if len(self._asked) >= _REMEMBERED:
                self._asked.clear()
            asked = asyncio.ensure_future(_newest(client, id))
            self._asked[id] = (now, asked)
        return asyncio.shield(asked)


async def _newest(client: Client, id: int) -> Row | None:
    try:
        start = datetime.now(UTC) - _LOOK_BACK
        found = await client.usage.of_task(id, start=start, sum=True)
    except HaiError:  # the list goes on without
        return None
    return numbers(found.sum[-1]) if found.sum else None
