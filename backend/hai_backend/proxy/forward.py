"""Forwards one request to a service and streams the response.

Both messages are parsed, checked and serialized again by our own server and client. Therefore no message reaches the
other side that the two sides could parse differently.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web
from multidict import CIMultiDict
from yarl import URL

from hai_backend.proxy.headers import to_browser, to_service

HEARTBEAT_SECONDS = 30.0
_MESSAGE_BYTES = 64 * 1024 * 1024
_CONNECT_SECONDS = 15.0
_UNSENDABLE_CODES = (1005, 1006)  # must not be sent in a close frame
SESSION_ENDED = 1008


class BodyTimeout(Exception):
    """A browser stopped sending a body."""


class ForwardedRequest:
    """A request with its destination and the user that it is sent for."""

    def __init__(
        self, request: web.Request, host: str, path: str, user: str, scheme: str, cookie: str
    ) -> None:
        self.request = request
        self.cookie = cookie
        self.url = URL(f"http://{host}{path}", encoded=True)
        connection = request.headers.get("Connection", "")
        headers = to_service(
            request.headers.items(), connection, request.host, scheme, user, cookie
        )
        self.headers: CIMultiDict[str] = CIMultiDict(headers)


def is_websocket(request: web.Request) -> bool:
    """Say whether the request is a websocket handshake."""
    return (
        request.method == "GET"
        and request.headers.get("Upgrade", "").lower() == "websocket"
        and "upgrade" in request.headers.get("Connection", "").lower()
    )


async def forward_request(
    session: aiohttp.ClientSession, forward: ForwardedRequest, set_cookie: str, body_seconds: float
) -> web.StreamResponse:
    """Forward a request and stream the response. Raises ClientError if there is none, or BodyTimeout."""
    request = forward.request
    body = _Body(request, body_seconds)
    try:
        async with session.request(
            request.method,
            forward.url,
            headers=forward.headers,
            data=body.chunks() if request.body_exists else None,
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        ) as service_response:
            return await _stream_response(request, service_response, forward.cookie, set_cookie)
    except (aiohttp.ClientError, TimeoutError):
        if body.timed_out:
            raise BodyTimeout from None
        raise


class _Body:
    """Streams the body of a request. `timed_out` is set if nothing arrived for too long."""

    def __init__(self, request: web.Request, seconds: float) -> None:
        self._content = request.content
        self._seconds = seconds
        self.timed_out = False

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while chunk := await asyncio.wait_for(self._content.readany(), self._seconds):
                yield chunk
        except TimeoutError:
            self.timed_out = True
            raise


async def _stream_response(
    request: web.Request, service_response: aiohttp.ClientResponse, cookie: str, set_cookie: str
) -> web.StreamResponse:
    connection = service_response.headers.get("Connection", "")
    headers = CIMultiDict(to_browser(service_response.headers.items(), connection, cookie))
    if set_cookie:
        headers.add("Set-Cookie", set_cookie)
    response = web.StreamResponse(
        status=service_response.status, reason=service_response.reason, headers=headers
    )
    await response.prepare(request)
    async for chunk in service_response.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


async def forward_websocket(
    session: aiohttp.ClientSession,
    forward: ForwardedRequest,
    on_open: Any,
    heartbeat: float = HEARTBEAT_SECONDS,
) -> web.StreamResponse:
    """Forward a websocket, message by message, until one side closes. Raises ClientError if the handshake fails.

    `on_open` is a context that is entered with the browser's side, so that other code can close it. Each side is pinged
    every `heartbeat` seconds, so that no proxy closes a quiet connection. A lost side is noticed after 1.5 intervals.
    """
    protocol_headers = forward.request.headers.getall("Sec-WebSocket-Protocol", [])
    protocols = [p.strip() for line in protocol_headers for p in line.split(",") if p.strip()]
    async with session.ws_connect(
        forward.url,
        headers=forward.headers,
        protocols=protocols,
        heartbeat=heartbeat,
        max_msg_size=_MESSAGE_BYTES,
        timeout=aiohttp.ClientWSTimeout(ws_close=5.0),
    ) as service:
        browser = web.WebSocketResponse(
            protocols=[service.protocol] if service.protocol else [],
            heartbeat=heartbeat,
            max_msg_size=_MESSAGE_BYTES,
            compress=False,
            timeout=5.0,
        )
        await browser.prepare(forward.request)
        with on_open(browser):
            await _relay(browser, service)
        return browser


async def _relay(browser: web.WebSocketResponse, service: aiohttp.ClientWebSocketResponse) -> None:
    """Copy messages in both directions. Pass the close code of the side that closes first to the other side."""
    tasks = {
        asyncio.ensure_future(_copy_messages(browser, service)),
        asyncio.ensure_future(_copy_messages(service, browser)),
    }
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await service.close(code=_close_code(browser.close_code))
    await browser.close(code=_close_code(service.close_code))


async def _copy_messages(source: Any, target: Any) -> None:
    with suppress(ConnectionError):  # the other direction reports it, too
        async for message in source:
            if message.type is WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await target.send_bytes(message.data)


def _close_code(code: int | None) -> int:
    return 1001 if code is None or code in _UNSENDABLE_CODES else code


def new_client(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """Create a client without cookies, decompression, or a limit on the response time of a service."""
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS),
    )
