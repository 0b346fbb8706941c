"""HTTP responses with pages of the proxy itself. They are not cached, and run only scripts of the proxy."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web

from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import HaiError
from hai_backend.domain.task import Task
from hai_backend.proxy.addresses import PROXY_PREFIX, Target
from hai_backend.proxy.pages import html_pages
from hai_backend.proxy.proxy_deps import ProxyDeps

PRIVATE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def language_of(request: web.Request) -> str:
    return html_pages.choose_language(request.headers.get("Accept-Language", ""))


def static_page(request: web.Request, key: str, status: int) -> web.Response:
    """Return a page that does not update itself. `key` is one of html_pages.TEXTS."""
    nonce = new_nonce()
    text = html_pages.static_page(key, language_of(request), nonce)
    return html_response(text, nonce, status, PRIVATE)


def html_response(text: str, nonce: str, status: int, headers: Mapping[str, str]) -> web.Response:
    """Return a page on which only scripts with the nonce run."""
    return web.Response(
        text=text,
        status=status,
        content_type="text/html",
        headers={**headers, "Content-Security-Policy": html_pages.CSP.format(nonce)},
    )


def close_after(response: web.Response) -> web.Response:
    """Mark a response so that the connection is closed after it, and return the response."""
    response.force_close()
    return response


def new_nonce() -> str:
    return secrets.token_urlsafe(12)


class WaitingPage:
    """Serves the page that a browser sees while a task or its service is not available."""

    def __init__(self, deps: ProxyDeps) -> None:
        self._deps = deps

    async def respond(self, request: web.Request, task: Task, service: str) -> web.Response:
        """Return a page that follows the status, or JSON for programs."""
        language = language_of(request)
        status = await self._deps.status_page.status(task, service, language)
        headers = {**PRIVATE, "Retry-After": "2"}
        if "text/html" not in request.headers.get("Accept", ""):
            return web.json_response(text=status.as_json(), status=503, headers=headers)
        prefix, nonce = self._deps.addresses.cookie_path(task.id).rstrip("/"), new_nonce()
        events = f"{prefix}/{PROXY_PREFIX}/events?service={service}"
        return html_response(
            html_pages.live_page(status, language, nonce, events), nonce, 503, headers
        )

    async def stream_events(
        self, request: web.Request, target: Target, visitor: Identity, service: str
    ) -> web.StreamResponse:
        """Send the current status and each new one as server-sent events."""
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
