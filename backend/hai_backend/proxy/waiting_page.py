"""Serves the waiting page while a task or its service is not available, and its changes."""

from __future__ import annotations

from contextlib import suppress

from aiohttp import web

from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import HaiError
from hai_backend.domain.task import Task
from hai_backend.proxy import pages
from hai_backend.proxy.addresses import PROXY_PREFIX, Target
from hai_backend.proxy.dependencies import ProxyDeps
from hai_backend.proxy.replies import PRIVATE, html, language_of, new_nonce


class WaitingPage:
    """Serves the status from `deps.status_page`."""

    def __init__(self, deps: ProxyDeps) -> None:
        self._deps = deps

    async def answer(self, request: web.Request, task: Task, service: str) -> web.Response:
        """Return a page that follows the status, or JSON for programs."""
        language = language_of(request)
        status = await self._deps.status_page.status(task, service, language)
        headers = {**PRIVATE, "Retry-After": "2"}
        if "text/html" not in request.headers.get("Accept", ""):
            return web.json_response(text=status.as_json(), status=503, headers=headers)
        prefix, nonce = self._deps.addresses.cookie_path(task.id).rstrip("/"), new_nonce()
        events = f"{prefix}/{PROXY_PREFIX}/events?service={service}"
        return html(pages.live_page(status, language, nonce, events), nonce, 503, headers)

    async def events(
        self, request: web.Request, target: Target, visitor: Identity, service: str
    ) -> web.StreamResponse:
        """Send server-sent events: the current status, and each new one."""
        headers = {**PRIVATE, "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)

        async def get_task() -> Task | None:
            with suppress(HaiError):
                return await self._deps.access.get_visible(visitor, target.task_id)
            return None

        feed = self._deps.task_manager.feed
        async for status in self._deps.status_page.changes(
            get_task, feed, service, language_of(request)
        ):
            line = f"data: {status.as_json()}" if status is not None else ":"
            await response.write(f"{line}\n\n".encode())
        return response
