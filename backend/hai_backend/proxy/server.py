"""Requests of browsers: who asks, for what, may they; then passing it on, or saying why not.

Only front.py loads this, with the first browser: aiohttp takes its time.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import aiohttp
import structlog
from aiohttp import web

from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import HaiError, NotFound
from hai_backend.domain.task import Task
from hai_backend.loops.tunnels import rank_of
from hai_backend.proxy import pages, passing
from hai_backend.proxy.addresses import OURS, Place
from hai_backend.proxy.connections import Connections, Limits
from hai_backend.proxy.connector import TunnelConnector, Unreached, host_of
from hai_backend.proxy.headers import cookie_value, foreign, set_cookie
from hai_backend.proxy.rooms import Rooms
from hai_backend.proxy.sessions import SESSION_SECONDS
from hai_backend.services.containers import web_service

log = structlog.get_logger(__name__)

_COOKIE, _SECURE_COOKIE = "hai_session", "__Host-hai_session"
_READS = ("GET", "HEAD", "OPTIONS")
_NAME = re.compile(r"[a-z0-9-]{1,63}")
_HANDSHAKE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 0.5
_PRIVATE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ProxyServer:
    """Serves connections that the door accepts. Make it with `started`."""

    def __init__(self, rooms: Rooms, tls: ssl.SSLContext | None, limits: Limits) -> None:
        self._r = rooms
        self._tls = tls
        self._limits = limits
        self._connections = Connections(limits)
        self._session = passing.client(TunnelConnector(rooms.tunnels))
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            auto_decompress=False,
            keepalive_timeout=limits.idle_seconds,
            shutdown_timeout=_SHUTDOWN_SECONDS,
        )
        self._sockets: dict[web.WebSocketResponse, tuple[Place, str]] = {}
        self._closing: set[asyncio.Task[bool]] = set()

    @classmethod
    async def started(cls, rooms: Rooms, tls: ssl.SSLContext | None, limits: Limits) -> ProxyServer:
        """Ready for connections."""
        server = cls(rooms, tls, limits)
        await server._runner.setup()
        return server

    async def receive(self, connection: socket.socket) -> None:
        """One connection of a browser."""
        assert self._runner.server is not None
        guarded = self._connections.guarded(self._runner.server)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: guarded,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS if self._tls else None,
            )
        except BaseException:
            guarded.gone()
            raise

    async def close(self) -> None:
        """End every connection; browsers come back by themselves."""
        for open_socket in list(self._sockets):
            self._end(open_socket, 1012, "the server is being restarted")
        if self._closing:
            await asyncio.wait(self._closing, timeout=_SHUTDOWN_SECONDS)
        await self._session.close()
        await self._runner.cleanup()

    def check(self) -> None:
        """Who may do what has changed: websockets of those who may not be here any more end."""
        for open_socket, (place, session) in list(self._sockets.items()):
            task = self._r.ledger.unfinished().get(place.task_id)
            visitor = self._r.sessions.visitor(place.task_id, session)
            if visitor is None or task is None or not self._r.access.sees(visitor, task):
                self._end(open_socket, passing.SESSION_ENDED, "signed out")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._connections.asked(request.protocol)
        place = self._r.addresses.place(request.host, request.raw_path.partition("?")[0])
        if place is None:
            return self._page(request, "nothing", 404)
        if place.ours and place.path == f"/{OURS}/login":
            return self._login(request, place)
        session = cookie_value("; ".join(request.headers.getall("Cookie", [])), self._cookie)
        visitor = self._r.sessions.visitor(place.task_id, session)
        if visitor is None:
            return self._page(request, "login", 401)
        if not self._connections.belongs(request.protocol, visitor.name):
            return self._closed(self._page(request, "full", 429))
        if foreign(
            request.headers, self._r.addresses.origin(place.task_id, place.service), request.method
        ):
            return self._page(request, "foreign", 403)
        try:
            task = await self._r.access.visible(visitor, place.task_id)
            service = web_service(task, place.service).name
        except NotFound:
            return self._page(request, "nothing", 404)
        if place.ours:
            return await self._ours(request, place, visitor, service)
        return await self._pass_on(request, place, visitor, task, service, session)

    @property
    def _cookie(self) -> str:
        whole_host = self._r.addresses.secure and not self._r.addresses.by_path
        return _SECURE_COOKIE if whole_host else _COOKIE

    def _login(self, request: web.Request, place: Place) -> web.StreamResponse:
        """Trade a link for a cookie. A link that somebody else has sent brings nobody anywhere but to its own task."""
        session = self._r.sessions.begin(place.task_id, request.query.get("key", ""))
        if session is None or request.method != "GET":
            return self._page(request, "link", 403)
        wanted = place.service or request.query.get("service", "")
        to = self._r.addresses.base_url(place.task_id, wanted if _NAME.fullmatch(wanted) else "")
        answer = web.Response(status=303, headers={**_PRIVATE, "Location": to})
        answer.headers["Set-Cookie"] = self._set_cookie(place, session)
        return answer

    def _set_cookie(self, place: Place, session: str) -> str:
        path = self._r.addresses.cookie_path(place.task_id)
        secure = self._r.addresses.secure
        return set_cookie(self._cookie, session, path, SESSION_SECONDS, secure=secure)

    async def _ours(
        self, request: web.Request, place: Place, visitor: Identity, service: str
    ) -> web.StreamResponse:
        if place.path == f"/{OURS}/events":
            wanted = request.query.get("service") or service
            return await self._events(request, place, visitor, wanted)
        return self._page(request, "nothing", 404)

    async def _pass_on(
        self,
        request: web.Request,
        place: Place,
        visitor: Identity,
        task: Task,
        service: str,
        session: str,
    ) -> web.StreamResponse:
        key = rank_of(task, 0)
        if key is None or not request.raw_path.startswith("/"):
            return await self._standing(request, place, task, service)
        if request.method not in _READS:
            self._r.board.touch(task.id)
        query = request.raw_path.partition("?")
        path = self._path(place, task, service, query[0]) + query[1] + query[2]
        scheme = self._r.addresses.scheme
        passage = passing.Passage(
            request, host_of(key, service), path, visitor.name, scheme, self._cookie
        )
        try:
            if passing.is_websocket(request):
                return await passing.pass_websocket(
                    self._session, passage, lambda opened: self._open(opened, place, session)
                )
            fresh, patience = self._renewed(place, session), self._limits.body_seconds
            return await passing.pass_on(self._session, passage, fresh, patience)
        except aiohttp.WSServerHandshakeError as refused:
            return web.Response(status=refused.status)
        except passing.BodyStopped:
            return self._closed(web.Response(status=408))
        except (Unreached, aiohttp.ClientError, TimeoutError) as error:
            log.info("a service does not answer", task=task.id, service=service, why=str(error))
            return await self._standing(request, place, task, service)

    def _path(self, place: Place, task: Task, service: str, public: str) -> str:
        """What the service is asked for: the public path, unless it wants to know nothing of its prefix."""
        spec = web_service(task, service)
        return (place.path or "/") if spec.rewrite_uri else public

    def _renewed(self, place: Place, session: str) -> str:
        fresh = self._r.sessions.renewed(place.task_id, session)
        return self._set_cookie(place, fresh) if fresh else ""

    @contextmanager
    def _open(self, opened: web.WebSocketResponse, place: Place, session: str) -> Iterator[None]:
        self._sockets[opened] = (place, session)
        try:
            yield
        finally:
            del self._sockets[opened]

    def _end(self, opened: web.WebSocketResponse, code: int, why: str) -> None:
        closing = asyncio.ensure_future(opened.close(code=code, message=why.encode()))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _standing(
        self, request: web.Request, place: Place, task: Task, service: str
    ) -> web.StreamResponse:
        """Why it cannot be shown: a page that follows it for people, a short text for programs."""
        speech = pages.language(request.headers.get("Accept-Language", ""))
        status = await self._r.standing.status(task, service, speech)
        headers = {**_PRIVATE, "Retry-After": "2"}
        if "text/html" not in request.headers.get("Accept", ""):
            return web.json_response(text=status.as_json(), status=503, headers=headers)
        prefix = self._r.addresses.cookie_path(task.id).rstrip("/")
        events = f"{prefix}/{OURS}/events?service={service}"
        nonce = secrets.token_urlsafe(12)
        text = pages.live(status, speech, nonce, events)
        return self._html(text, nonce, 503, headers)

    async def _events(
        self, request: web.Request, place: Place, visitor: Identity, service: str
    ) -> web.StreamResponse:
        """Server-sent events: the status now, and each new one."""
        speech = pages.language(request.headers.get("Accept-Language", ""))
        headers = {**_PRIVATE, "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)

        async def get() -> Task | None:
            with suppress(HaiError):
                return await self._r.access.visible(visitor, place.task_id)
            return None

        changes = self._r.standing.changes(get, self._r.ledger.feed, service, speech)
        async for status in changes:
            line = f"data: {status.as_json()}" if status is not None else ":"
            await response.write(f"{line}\n\n".encode())
        return response

    def _closed(self, answer: web.Response) -> web.Response:
        answer.force_close()
        return answer

    def _page(self, request: web.Request, key: str, status: int) -> web.Response:
        speech = pages.language(request.headers.get("Accept-Language", ""))
        nonce = secrets.token_urlsafe(12)
        return self._html(pages.simple(key, speech, nonce), nonce, status, _PRIVATE)

    def _html(self, text: str, nonce: str, status: int, headers: dict[str, str]) -> web.Response:
        return web.Response(
            text=text,
            status=status,
            content_type="text/html",
            headers={**headers, "Content-Security-Policy": pages.CSP.format(nonce)},
        )
