"""Caches the current usage of tasks for list columns: one request at a time for all pages together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from hai.client.client import Client
from hai.client.errors import HaiError
from hai.v1.usage_service_pb2 import UsagePoint

Row = list[float | None]
_FRESH_SECONDS = 15.0
_LOOKBACK = timedelta(minutes=3)  # samples are one minute apart, and the newest is incomplete
_MAX_TASKS = 1000


class UsageCache:
    """The newest usage sample of each task, summed over its ranks."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._requests: dict[int, tuple[float, asyncio.Future[Row | None]]] = {}

    async def current(self, client: Client, ids: Sequence[int]) -> dict[int, Row]:
        """Return the usage of each task that has a sample."""
        rows = await asyncio.gather(*(self._shared_request(client, id) for id in ids))
        return {id: row for id, row in zip(ids, rows, strict=True) if row is not None}

    def _shared_request(self, client: Client, id: int) -> asyncio.Future[Row | None]:
        """Return the request for a task, which callers share for some seconds."""
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
        answer = await client.usage.of_task(id, start=start, sum=True)
    except HaiError:  # the list shows the task without usage
        return None
    return usage_row(answer.sum[-1]) if answer.sum else None


def usage_row(point: UsagePoint) -> Row:
    """Return time, CPUs, memory, share of GPUs and memory of GPUs; None where there are no GPUs."""
    has_gpus = point.HasField("gpu_utilisation")
    return [
        point.time.seconds,
        point.cpus,
        point.memory_bytes,
        point.gpu_utilisation if has_gpus else None,
        point.gpu_memory_bytes if has_gpus else None,
    ]
