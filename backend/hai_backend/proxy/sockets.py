"""Websockets and answers that last. They may go on for hours, so each ends with its session or the server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from hai_backend.proxy.addresses import Place
from hai_backend.proxy.connector import PER_TASK
from hai_backend.proxy.dependencies import ProxyDeps
from hai_backend.proxy.forward import SESSION_ENDED

_RESTARTS = 1012


class Sockets:
    """Knows for whom each is open."""

    def __init__(self, rooms: ProxyDeps) -> None:
        self._r = rooms
        self._open: dict[web.WebSocketResponse, tuple[Place, str]] = {}
        self._answers: dict[asyncio.Task[object], tuple[Place, str]] = {}
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

    @contextmanager
    def answering(self, place: Place, session: str) -> Iterator[None]:
        """The block gives an answer, which may have no end: a stream of events, a large file."""
        work = asyncio.current_task()
        assert work is not None
        self._answers[work] = (place, session)
        try:
            yield
        finally:
            del self._answers[work]

    def check(self) -> None:
        """Who may do what has changed: those of whoever may not be here any more end."""
        for opened, whose in list(self._open.items()):
            if not self._admitted(*whose):
                self._end(opened, SESSION_ENDED, "signed out")
        for work, whose in list(self._answers.items()):
            if not self._admitted(*whose):
                work.cancel()

    def _admitted(self, place: Place, session: str) -> bool:
        task = self._r.task_manager.unfinished().get(place.task_id)
        visitor = self._r.sessions.visitor(place.task_id, session)
        return visitor is not None and task is not None and self._r.access.sees(visitor, task)

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
