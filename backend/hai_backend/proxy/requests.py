"""Requests of browsers: who asks, for what, may they; then passing it on, or saying why not."""

from __future__ import annotations

import aiohttp
import structlog
from aiohttp import web

from hai_backend.api.containers.containers import web_service
from hai_backend.auth.permissions import Identity
from hai_backend.controllers.cluster.tunnels import rank_of
from hai_backend.domain.errors import NotFound
from hai_backend.domain.task import Task
from hai_backend.proxy import forward
from hai_backend.proxy.addresses import OURS, Place
from hai_backend.proxy.connections import Connections
from hai_backend.proxy.connector import TunnelConnector, Unreached, host_of
from hai_backend.proxy.dependencies import ProxyDeps
from hai_backend.proxy.headers import foreign
from hai_backend.proxy.login import Login
from hai_backend.proxy.replies import closed, page
from hai_backend.proxy.sockets import Sockets
from hai_backend.proxy.waiting_page import WaitingPage

log = structlog.get_logger(__name__)

_READS = ("GET", "HEAD", "OPTIONS")


class Requests:
    """Answers each. `body_seconds` is how long a body may stand still."""

    def __init__(
        self, rooms: ProxyDeps, connections: Connections, sockets: Sockets, body_seconds: float
    ) -> None:
        self._r = rooms
        self._connections = connections
        self._sockets = sockets
        self._body_seconds = body_seconds
        self._entrance = Login(rooms)
        self._waiting = WaitingPage(rooms)
        self._session = forward.client(TunnelConnector(rooms.tunnels))
        self._long = forward.client(TunnelConnector(rooms.tunnels))  # websockets, which last

    async def close(self) -> None:
        """End the connections to services."""
        await self._entrance.close()
        await self._session.close()
        await self._long.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Whoever has no session is answered alike, whether the task exists or not."""
        self._connections.asked(request.protocol)
        place = self._r.addresses.place(request.host, request.raw_path.partition("?")[0])
        if place is None:
            return page(request, "nothing", 404)
        if place.ours and place.path == f"/{OURS}/login":
            return await self._entrance.login(request, place)
        session = self._entrance.session(request)
        visitor = self._r.sessions.visitor(place.task_id, session)
        if visitor is None:
            return page(request, "login", 401)
        if not self._connections.belongs(request.protocol, visitor.name):
            return closed(page(request, "full", 429))
        origin = self._r.addresses.origin(place.task_id, place.service)
        if foreign(request.headers, origin, request.method):
            return page(request, "foreign", 403)
        return await self._admitted(request, place, visitor, session)

    async def _admitted(
        self, request: web.Request, place: Place, visitor: Identity, session: str
    ) -> web.StreamResponse:
        try:
            task = await self._r.access.visible(visitor, place.task_id)
            service = web_service(task, place.service).name
        except NotFound:
            return page(request, "nothing", 404)
        if not place.ours:
            return await self._shown(request, place, visitor, task, service, session)
        if place.path == f"/{OURS}/events":
            wanted = request.query.get("service") or service
            with self._sockets.answering(place, session):
                return await self._waiting.events(request, place, visitor, wanted)
        return page(request, "nothing", 404)

    async def _shown(
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
            return await self._waiting.answer(request, task, service)
        if request.method not in _READS:
            self._r.board.touch(task.id)
        path, scheme = _path(request, place, task, service), self._r.addresses.scheme
        passage = forward.Forward(
            request, host_of(key, service), path, visitor.name, scheme, self._entrance.cookie
        )
        try:
            return await self._passed(request, passage, place, session)
        except aiohttp.WSServerHandshakeError as refused:
            return web.Response(status=refused.status)
        except forward.BodyStopped:
            return closed(web.Response(status=408))
        except aiohttp.ConnectionTimeoutError:
            # None of those it may have came free; a service that cannot be reached is Unreached
            return page(request, "full", 429)
        except (Unreached, aiohttp.ClientError, TimeoutError) as error:
            log.info("a service does not answer", task=task.id, service=service, why=str(error))
            return await self._waiting.answer(request, task, service)

    async def _passed(
        self, request: web.Request, passage: forward.Forward, place: Place, session: str
    ) -> web.StreamResponse:
        if forward.is_websocket(request):
            with self._sockets.wanted(str(passage.url.host)) as free:
                if not free:
                    return page(request, "full", 429)
                return await forward.pass_websocket(
                    self._long, passage, lambda opened: self._sockets.open(opened, place, session)
                )
        fresh = self._entrance.renewed(place, session)
        with self._sockets.answering(place, session):
            return await forward.pass_on(self._session, passage, fresh, self._body_seconds)


def _path(request: web.Request, place: Place, task: Task, service: str) -> str:
    """What the service is asked for: the public path, unless it wants to know nothing of its prefix."""
    public, mark, query = request.raw_path.partition("?")
    inside = (place.path or "/") if web_service(task, service).rewrite_uri else public
    return inside + mark + query
