"""Handles requests of browsers: authenticates, authorizes, then forwards them or explains why not."""

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
from hai_backend.proxy.addresses import PROXY_PREFIX, Target
from hai_backend.proxy.connections import Connections
from hai_backend.proxy.connector import ServiceUnreachable, TunnelConnector, internal_host
from hai_backend.proxy.headers import is_cross_origin
from hai_backend.proxy.login import Login
from hai_backend.proxy.pages.responses import WaitingPage, close_after, static_page
from hai_backend.proxy.proxy_deps import ProxyDeps
from hai_backend.proxy.sockets import Sockets

log = structlog.get_logger(__name__)

_READ_METHODS = ("GET", "HEAD", "OPTIONS")


class Requests:
    """Handles each request. `body_seconds` is how long a body may make no progress."""

    def __init__(
        self, deps: ProxyDeps, connections: Connections, sockets: Sockets, body_seconds: float
    ) -> None:
        self._deps = deps
        self._connections = connections
        self._sockets = sockets
        self._body_seconds = body_seconds
        self._login = Login(deps)
        self._waiting_page = WaitingPage(deps)
        self._client = forward.new_client(TunnelConnector(deps.tunnels))
        # Websockets are long-lived, so they have connections of their own
        self._websocket_client = forward.new_client(TunnelConnector(deps.tunnels))

    async def close(self) -> None:
        """Close the connections to services."""
        await self._login.close()
        await self._client.close()
        await self._websocket_client.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle a request. Without a session, the response does not reveal whether the task exists."""
        self._connections.request_started(request.protocol)
        target = self._deps.addresses.parse(request.host, request.raw_path.partition("?")[0])
        if target is None:
            return static_page(request, "nothing", 404)
        if target.for_proxy and target.path == f"/{PROXY_PREFIX}/login":
            return await self._login.login(request, target)
        session = self._login.session(request)
        visitor = self._deps.sessions.visitor(target.task_id, session)
        if visitor is None:
            return static_page(request, "login", 401)
        if not self._connections.assign_user(request.protocol, visitor.name):
            return close_after(static_page(request, "full", 429))
        origin = self._deps.addresses.origin(target.task_id, target.service)
        if is_cross_origin(request.headers, origin, request.method):
            return static_page(request, "foreign", 403)
        return await self._handle_authorized(request, target, visitor, session)

    async def _handle_authorized(
        self, request: web.Request, target: Target, visitor: Identity, session: str
    ) -> web.StreamResponse:
        try:
            task = await self._deps.access.get_visible(visitor, target.task_id)
            service = web_service(task, target.service).name
        except NotFound:
            return static_page(request, "nothing", 404)
        if not target.for_proxy:
            return await self._handle_service(request, target, visitor, task, service, session)
        if target.path == f"/{PROXY_PREFIX}/events":
            service_name = request.query.get("service") or service
            with self._sockets.track_response(target, session):
                return await self._waiting_page.stream_events(
                    request, target, visitor, service_name
                )
        return static_page(request, "nothing", 404)

    async def _handle_service(
        self,
        request: web.Request,
        target: Target,
        visitor: Identity,
        task: Task,
        service: str,
        session: str,
    ) -> web.StreamResponse:
        key = rank_of(task, 0)
        if key is None or not request.raw_path.startswith("/"):
            return await self._waiting_page.respond(request, task, service)
        if request.method not in _READ_METHODS:
            self._deps.service_states.touch(task.id)
        path, scheme = _service_path(request, target, task, service), self._deps.addresses.scheme
        forwarded = forward.ForwardedRequest(
            request, internal_host(key, service), path, visitor.name, scheme, self._login.cookie
        )
        try:
            return await self._forward(request, forwarded, target, session)
        except aiohttp.WSServerHandshakeError as refusal:
            return web.Response(status=refusal.status)
        except forward.BodyTimeout:
            return close_after(web.Response(status=408))
        except aiohttp.ConnectionTimeoutError:
            # All connections to the service are in use. An unreachable service raises ServiceUnreachable
            return static_page(request, "full", 429)
        except (ServiceUnreachable, aiohttp.ClientError, TimeoutError) as error:
            log.info("service does not answer", task=task.id, service=service, why=str(error))
            return await self._waiting_page.respond(request, task, service)

    async def _forward(
        self,
        request: web.Request,
        forwarded: forward.ForwardedRequest,
        target: Target,
        session: str,
    ) -> web.StreamResponse:
        if forward.is_websocket(request):
            with self._sockets.reserve(str(forwarded.url.host)) as is_free:
                if not is_free:
                    return static_page(request, "full", 429)
                return await forward.forward_websocket(
                    self._websocket_client,
                    forwarded,
                    lambda websocket: self._sockets.open(websocket, target, session),
                )
        renewed_cookie = self._login.renewal_cookie(target, session)
        with self._sockets.track_response(target, session):
            return await forward.forward_request(
                self._client, forwarded, renewed_cookie, self._body_seconds
            )


def _service_path(request: web.Request, target: Target, task: Task, service: str) -> str:
    """Return the path for the service: the public path, without its prefix if the service is configured so."""
    public_path, separator, query = request.raw_path.partition("?")
    removes_prefix = web_service(task, service).rewrite_uri
    return ((target.path or "/") if removes_prefix else public_path) + separator + query
