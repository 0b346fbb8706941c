"""Websockets that are open. They outlive requests by hours, so each ends with its session or the server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from hai_backend.proxy.addresses import Place
from hai_backend.proxy.connector import PER_TASK
from hai_backend.proxy.passing import SESSION_ENDED
from hai_backend.proxy.rooms import Rooms

_RESTARTS = 1012


class Sockets:
    """Knows for whom each is open."""

    def __init__(self, rooms: Rooms) -> None:
        self._r = rooms
        self._open: dict[web.WebSocketResponse, tuple[Place, str]] = {}
        self._closing: set[asyncio.Task[bool]] = set()
        self._wanted: Counter[str] = Counter()

    @contextmanager
    def wanted(self, host: str) -> Iterator[bool]:
        """One more into a service, while the block runs. False: it has all that it may have, and none ends soon."""
        self._wanted[host] += 1
        try:
            yield self._wanted[host] <= PER_TASK
        finally:
            self._wanted -= Counter([host])  # no trace is left of what has none

    @contextmanager
    def open(self, opened: web.WebSocketResponse, place: Place, session: str) -> Iterator[None]:
        """One more, while the block runs."""
        self._open[opened] = (place, session)
        try:
            yield
        finally:
            del self._open[opened]

    def check(self) -> None:
        """Who may do what has changed: those of whoever may not be here any more end."""
        for opened, (place, session) in list(self._open.items()):
            task = self._r.ledger.unfinished().get(place.task_id)
            visitor = self._r.sessions.visitor(place.task_id, session)
            if visitor is None or task is None or not self._r.access.sees(visitor, task):
                self._end(opened, SESSION_ENDED, "signed out")

    async def close(self, seconds: float) -> None:
        """End all; browsers come back by themselves."""
        for opened in list(self._open):
            self._end(opened, _RESTARTS, "the server is being restarted")
        if self._closing:
            await asyncio.wait(self._closing, timeout=seconds)

    def _end(self, opened: web.WebSocketResponse, code: int, why: str) -> None:
        closing = asyncio.ensure_future(opened.close(code=code, message=why.encode()))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
