"""Runs one stream of the platform for all pages: from the first page until some time after the last one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from hai.client.connection.cancellation import cancelled_only_from_outside
from hai_jupyter.live.state_store import StateStore
from hai_jupyter.live.subscriber import Subscriber

log = logging.getLogger(__name__)

RESTART_SECONDS = 1.0  # a source that has ended is started again after this time


class Source(Protocol):
    """Keeps the store up to date until it is cancelled."""

    def follow(self) -> Coroutine[Any, Any, None]:
        """Update the store until cancelled."""


class StreamManager:
    """Runs sources while a page is open and for `linger` seconds more, so that a reloaded page misses nothing."""

    def __init__(self, store: StateStore, sources: Sequence[Source], linger: float) -> None:
        self.store = store
        self._sources = sources
        self._linger = linger
        self._running: list[asyncio.Task[None]] = []
        self._end_timer: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> int:
        """Return the number of running sources."""
        return len(self._running)

    @contextmanager
    def page(self, store_id: str = "", after: int = 0) -> Iterator[Subscriber]:
        """Subscribe a page while the block runs."""
        self._start()
        try:
            with self.store.page(store_id, after) as page:
                yield page
        finally:
            if self.store.page_count == 0:
                loop = asyncio.get_running_loop()
                self._end_timer = loop.call_later(self._linger, self._end)

    async def close(self) -> None:
        """Stop all sources."""
        self._cancel_end_timer()
        running = self._running
        self._end()
        await asyncio.gather(*running, return_exceptions=True)

    def _start(self) -> None:
        self._cancel_end_timer()
        if not self._running:
            self._running = [asyncio.ensure_future(_follow_forever(s)) for s in self._sources]

    def _end(self) -> None:
        for task in self._running:
            task.cancel()
        self._running = []

    def _cancel_end_timer(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None


async def _follow_forever(source: Source) -> NoReturn:
    """Restart a source whenever it ends; otherwise pages would seem connected but receive nothing."""
    while True:
        try:
            with cancelled_only_from_outside("the stream from the platform"):
                await source.follow()
        except Exception:
            log.exception("the stream from the server has ended; it is started again")
        await asyncio.sleep(RESTART_SECONDS)
