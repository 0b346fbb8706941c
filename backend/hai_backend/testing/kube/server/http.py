"""The API server. It serves HTTP on a loopback socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from hai_backend.testing.kube.api import Api
from hai_backend.testing.kube.errors import ApiError
from hai_backend.testing.kube.faults.requests import Answer, Close, Delay, Fault, Faults, Truncate
from hai_backend.testing.kube.faults.watches import WatchFaults
from hai_backend.testing.kube.request_info import RequestInfo, parse_request
from hai_backend.testing.kube.server import discovery
from hai_backend.testing.kube.server.handler import Reply, RequestHandler
from hai_backend.testing.kube.server.request_log import LoggedRequest, RequestLog
from hai_backend.testing.kube.timers import pause
from hai_backend.testing.kube.watch import Lines, Watch, WatchOptions


def error_response(error: ApiError) -> web.Response:
    """Return the response for an error, with its Status body."""
    seconds = error.retry_after
    headers = {"Retry-After": str(seconds)} if seconds is not None else None
    body = json.dumps(error.status()).encode()
    return web.Response(
        status=error.code, body=body, content_type="application/json", headers=headers
    )


def abort_connection(request: web.BaseRequest) -> None:
    """Break the connection of a request."""
    if request.transport is not None:
        request.transport.abort()


def disconnect(request: web.BaseRequest) -> web.Response:
    """Break the connection instead of sending a response."""
    abort_connection(request)
    return web.Response()


async def send_half(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    """Send half of a response, then close the connection."""
    response = web.StreamResponse(status=reply.code, headers={"Content-Type": reply.form})
    response.content_length = len(reply.body)
    await response.prepare(request)
    await response.write(reply.body[: len(reply.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


_STOP_SECONDS = 1.0
_FAULT_DELAY_SECONDS = 1.0  # after this time, a faulty stream breaks
_MAX_BODY_BYTES = 3 << 20
_STREAM = {"Content-Type": "application/json", "Cache-Control": "no-cache, private"}


class Server:
    """The HTTP server. It may be stopped and started again at the same address."""

    def __init__(self, api: Api, handler: RequestHandler, lag: int) -> None:
        self._api = api
        self._handler = handler
        self._lag = lag
        self.faults = Faults()
        self.request_log = RequestLog()
        self.watches: set[Watch] = set()
        self.watch_faults = WatchFaults(lambda: tuple(self.watches))
        self._runner: web.ServerRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start to listen. After `stop`, the port is the same as before."""
        server = web.Server(self._handle, handler_cancellation=True, request_factory=_request)
        self._runner = web.ServerRunner(server, shutdown_timeout=_STOP_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Abort all connections, as if the server were killed."""
        if self._runner is None or self._runner.server is None:
            return
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()
        self._runner = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return error_response(error)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # A bug of the fake cluster, which FakeCluster reports when it ends
            self._api.store.failures.append(error)
            return error_response(ApiError(500, f"the fake server failed: {error!r}"))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, after the faults that occur before its execution. Raises ApiError."""
        path, query = request.path, dict(request.query)
        found = discovery.answer(self._api.resources, path)
        if found is not None:
            self._log_request(request, None)
            return web.Response(body=found[1], content_type=found[0])
        info = parse_request(self._api.resources, request.method, path, query)
        self._log_request(request, info)
        fault = self.faults.decide(info)
        if isinstance(fault, Answer):
            raise fault.error()
        if isinstance(fault, Delay):
            await pause(self._api.timers, fault.seconds)
        if fault == Close():
            return disconnect(request)
        return await self._execute(request, info, fault)

    async def _execute(
        self, request: web.BaseRequest, info: RequestInfo, fault: Fault | None
    ) -> web.StreamResponse:
        """Execute a request, and apply the faults that occur after it. Raises ApiError."""
        if info.verb == "watch":
            return await self._stream_watch(request, info, fault)
        if info.subresource == "log" and info.query.get("follow") == "true":
            return await self._stream_log(request, info)
        body = await request.read()
        form = request.headers.get("Content-Type", "").partition(";")[0]
        reply = self._handler.perform(info, form, body)
        if isinstance(fault, Close):
            return disconnect(request)
        if isinstance(fault, Truncate):
            return await send_half(request, reply)
        return web.Response(status=reply.code, body=reply.body, content_type=reply.form)

    async def _stream_watch(
        self, request: web.BaseRequest, info: RequestInfo, fault: Fault | None
    ) -> web.StreamResponse:
        options = WatchOptions.parse(info.resource, info.namespace, _watch_query(info))
        watch = Watch(options, self._api.store, self._api.timers, self._lag)
        watch.disturb = lambda lines: self._disturb(watch, lines)
        response = web.StreamResponse(headers=_STREAM)
        response.enable_chunked_encoding()
        self.watches.add(watch)
        if isinstance(fault, Close | Truncate):
            self._api.timers.call_later(_FAULT_DELAY_SECONDS, lambda: abort_connection(request))
        try:
            await response.prepare(request)
            await watch.run(response.write)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has disconnected
        finally:
            self.watches.discard(watch)
        return response

    def _disturb(self, watch: Watch, lines: Lines) -> Lines:
        return self.watch_faults.apply(watch, lines)

    async def _stream_log(self, request: web.BaseRequest, info: RequestInfo) -> web.StreamResponse:
        chunks = self._handler.follow_log(info)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            async for chunk in chunks:
                await response.write(chunk)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has disconnected
        return response

    def _log_request(self, request: web.BaseRequest, info: RequestInfo | None) -> None:
        verb = info.verb if info is not None else request.method.lower()
        object_ref = (
            (info.resource.plural, info.namespace, info.name) if info is not None else ("", "", "")
        )
        agent = request.headers.get("User-Agent", "")
        self.request_log.add(
            LoggedRequest(verb, request.path_qs, *object_ref, agent, self._api.timers.now())
        )


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        *(message, payload, protocol, writer, task, loop), client_max_size=_MAX_BODY_BYTES
    )


def _watch_query(info: RequestInfo) -> dict[str, str]:
    """Return the query of a watch. A watch of one object is a watch with a field selector."""
    query = dict(info.query)
    if info.name:
        query["fieldSelector"] = f"metadata.name={info.name}"
    return query
