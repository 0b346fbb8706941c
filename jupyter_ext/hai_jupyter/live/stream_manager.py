"""One stream from the platform for all pages: it begins with the first, and ends some time after the last."""

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

AGAIN_SECONDS = 1.0  # until a source that has ended begins again


class Source(Protocol):
    """Something that keeps the board true until it is cancelled."""

    def follow(self) -> Coroutine[Any, Any, None]:
        """Never returns."""


class StreamManager:
    """Runs its sources while somebody looks, and for `linger` seconds more: a page that is reloaded loses nothing."""

    def __init__(self, board: StateStore, sources: Sequence[Source], linger: float) -> None:
        self.board = board
        self._sources = sources
        self._linger = linger
        self._running: list[asyncio.Task[None]] = []
        self._leaving: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> int:
        """Sources that run."""
        return len(self._running)

    @contextmanager
    def page(self, board: str = "", after: int = 0) -> Iterator[Subscriber]:
        """A page is open."""
        self._keep()
        try:
            with self.board.page(board, after) as page:
                yield page
        finally:
            if self.board.pages == 0:
                loop = asyncio.get_running_loop()
                self._leaving = loop.call_later(self._linger, self._end)

    async def close(self) -> None:
        """End the streams."""
        self._cancel_leaving()
        running = self._running
        self._end()
        await asyncio.gather(*running, return_exceptions=True)

    def _keep(self) -> None:
        self._cancel_leaving()
        if not self._running:
            self._running = [asyncio.ensure_future(_followed(s)) for s in self._sources]

    def _end(self) -> None:
        for task in self._running:
            task.cancel()
        self._running = []

    def _cancel_leaving(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None


async def _followed(source: Source) -> NoReturn:
    """A source that ends, however it does, begins again: pages would look alive and be told nothing."""
    while True:
        try:
            with cancelled_only_from_outside("the stream from the platform"):
                await source.follow()
        except Exception:
            log.exception("the stream from the platform has ended; it begins again")
        await asyncio.sleep(AGAIN_SECONDS)
