"""What a browser gets while a task or its service cannot be shown: why, for when, and every change of that."""

from __future__ import annotations

from contextlib import suppress

from aiohttp import web

from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import HaiError
from hai_backend.domain.task import Task
from hai_backend.proxy import pages
from hai_backend.proxy.addresses import OURS, Place
from hai_backend.proxy.dependencies import ProxyDeps
from hai_backend.proxy.replies import PRIVATE, html, new_nonce, speech


class WaitingPage:
    """Reads what `rooms.standing` says."""

    def __init__(self, rooms: ProxyDeps) -> None:
        self._r = rooms

    async def answer(self, request: web.Request, task: Task, service: str) -> web.Response:
        """A page that follows it for people, a short text for programs."""
        said = speech(request)
        status = await self._r.standing.status(task, service, said)
        headers = {**PRIVATE, "Retry-After": "2"}
        if "text/html" not in request.headers.get("Accept", ""):
            return web.json_response(text=status.as_json(), status=503, headers=headers)
        prefix, nonce = self._r.addresses.cookie_path(task.id).rstrip("/"), new_nonce()
        events = f"{prefix}/{OURS}/events?service={service}"
        return html(pages.live(status, said, nonce, events), nonce, 503, headers)

    async def events(
        self, request: web.Request, place: Place, visitor: Identity, service: str
    ) -> web.StreamResponse:
        """Server-sent events: the status now, and each new one."""
        headers = {**PRIVATE, "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)

        async def get() -> Task | None:
            with suppress(HaiError):
                return await self._r.access.visible(visitor, place.task_id)
            return None

        feed = self._r.task_manager.feed
        async for status in self._r.standing.changes(get, feed, service, speech(request)):
            line = f"data: {status.as_json()}" if status is not None else ":"
            await response.write(f"{line}\n\n".encode())
        return response
