"""One request to a service, and its answer: read, checked and written anew on both sides, never spliced.

So nothing that the two sides could read differently gets through: each is framed by our own client and server.
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
_GONE_CODES = (1005, 1006)  # may not be sent
SESSION_ENDED = 1008


class BodyStopped(Exception):
    """A browser has begun to send a body and does not go on."""


class Forward:
    """A request on its way: where it goes, and in whose name."""

    def __init__(
        self, request: web.Request, host: str, path: str, user: str, scheme: str, cookie: str
    ) -> None:
        self.request = request
        self.cookie = cookie
        self.url = URL(f"http://{host}{path}", encoded=True)
        connection = request.headers.get("Connection", "")
        told = to_service(request.headers.items(), connection, request.host, scheme, user, cookie)
        self.headers: CIMultiDict[str] = CIMultiDict(told)


def is_websocket(request: web.Request) -> bool:
    """Whether the browser asks to leave HTTP."""
    return (
        request.method == "GET"
        and request.headers.get("Upgrade", "").lower() == "websocket"
        and "upgrade" in request.headers.get("Connection", "").lower()
    )


async def pass_on(
    session: aiohttp.ClientSession, passage: Forward, set_cookie: str, body_seconds: float
) -> web.StreamResponse:
    """Answer with what the service answers. Raises ClientError when it does not, and BodyStopped."""
    request = passage.request
    body = _Body(request, body_seconds)
    try:
        async with session.request(
            request.method,
            passage.url,
            headers=passage.headers,
            data=body.pieces() if request.body_exists else None,
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        ) as answer:
            return await _answer(request, answer, passage.cookie, set_cookie)
    except (aiohttp.ClientError, TimeoutError):
        if body.stopped:
            raise BodyStopped from None
        raise


class _Body:
    """What a browser sends, as it comes; `stopped` when nothing came for so long."""

    def __init__(self, request: web.Request, seconds: float) -> None:
        self._content = request.content
        self._seconds = seconds
        self.stopped = False

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while piece := await asyncio.wait_for(self._content.readany(), self._seconds):
                yield piece
        except TimeoutError:
            self.stopped = True
            raise


async def _answer(
    request: web.Request, answer: aiohttp.ClientResponse, cookie: str, set_cookie: str
) -> web.StreamResponse:
    connection = answer.headers.get("Connection", "")
    told = CIMultiDict(to_browser(answer.headers.items(), connection, cookie))
    if set_cookie:
        told.add("Set-Cookie", set_cookie)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=told)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


async def pass_websocket(
    session: aiohttp.ClientSession,
    passage: Forward,
    opened: Any,
    heartbeat: float = HEARTBEAT_SECONDS,
) -> web.StreamResponse:
    """Both sides of a websocket, message by message, until one of them ends. Raises ClientError when there is none.

    `opened` is told of the browser's side, so that it can be closed from outside. Each side is pinged every `heartbeat`
    seconds: nothing between cuts a quiet one, and a side that is gone without a word is noticed after one and a half.
    """
    wanted = passage.request.headers.getall("Sec-WebSocket-Protocol", [])
    protocols = [word.strip() for line in wanted for word in line.split(",") if word.strip()]
    async with session.ws_connect(
        passage.url,
        headers=passage.headers,
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
        await browser.prepare(passage.request)
        with opened(browser):
            await _both_ways(browser, service)
        return browser


async def _both_ways(
    browser: web.WebSocketResponse, service: aiohttp.ClientWebSocketResponse
) -> None:
    """Who closes first says why to the other."""
    ways = {
        asyncio.ensure_future(_one_way(browser, service)),
        asyncio.ensure_future(_one_way(service, browser)),
    }
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    await service.close(code=_code(browser.close_code))
    await browser.close(code=_code(service.close_code))


async def _one_way(source: Any, target: Any) -> None:
    with suppress(ConnectionError):  # the other way says so, too
        async for message in source:
            if message.type is WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await target.send_bytes(message.data)


def _code(code: int | None) -> int:
    return 1001 if code is None or code in _GONE_CODES else code


def client(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """Keeps no cookies, follows nothing, unpacks nothing, and has no idea of how long a service may think."""
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS),
    )
