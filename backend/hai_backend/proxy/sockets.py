"""Tracks websockets and long responses. They may last for hours, so they are closed with their session or server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from hai_backend.proxy.addresses import Target
from hai_backend.proxy.connector import MAX_PER_SERVICE
from hai_backend.proxy.forward import SESSION_ENDED
from hai_backend.proxy.proxy_deps import ProxyDeps

_SERVICE_RESTART = 1012


class Sockets:
    """The open websockets and responses, with their targets and sessions."""

    def __init__(self, deps: ProxyDeps) -> None:
        self._deps = deps
        self._open: dict[web.WebSocketResponse, tuple[Target, str]] = {}
        self._responses: dict[asyncio.Task[object], tuple[Target, str]] = {}
        self._closing: set[asyncio.Task[bool]] = set()
        self._reserved: Counter[str] = Counter()

    @contextmanager
    def reserve(self, host: str) -> Iterator[bool]:
        """Count a websocket to a service during the block. Yield False if the service has reached its limit."""
        self._reserved[host] += 1
        try:
            yield self._reserved[host] <= MAX_PER_SERVICE
        finally:
            self._reserved -= Counter([host])  # removes counters of 0

    @contextmanager
    def open(
        self, websocket: web.WebSocketResponse, target: Target, session: str
    ) -> Iterator[None]:
        """Track a websocket during the block."""
        self._open[websocket] = (target, session)
        try:
            yield
        finally:
            del self._open[websocket]

    @contextmanager
    def track_response(self, target: Target, session: str) -> Iterator[None]:
        """Track the response that the block sends. It may be endless, such as a stream of events or a large file."""
        response_task = asyncio.current_task()
        assert response_task is not None
        self._responses[response_task] = (target, session)
        try:
            yield
        finally:
            del self._responses[response_task]

    def check(self) -> None:
        """Close websockets and responses whose user is no longer allowed to have them."""
        for websocket, owner in list(self._open.items()):
            if not self._is_allowed(*owner):
                self._close(websocket, SESSION_ENDED, "signed out")
        for response_task, owner in list(self._responses.items()):
            if not self._is_allowed(*owner):
                response_task.cancel()

    def _is_allowed(self, target: Target, session: str) -> bool:
        task = self._deps.task_manager.unfinished().get(target.task_id)
        visitor = self._deps.sessions.visitor(target.task_id, session)
        return visitor is not None and task is not None and self._deps.access.can_see(visitor, task)

    async def close(self, seconds: float) -> None:
        """Close all websockets. Browsers reconnect."""
        for websocket in list(self._open):
            self._close(websocket, _SERVICE_RESTART, "the server is being restarted")
        if self._closing:
            await asyncio.wait(self._closing, timeout=seconds)

    def _close(self, websocket: web.WebSocketResponse, code: int, reason: str) -> None:
        closing = asyncio.ensure_future(websocket.close(code=code, message=reason.encode()))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
