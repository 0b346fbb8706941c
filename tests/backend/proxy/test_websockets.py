"""Long-lived websockets are kept open by pings, and closed when one side is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext

import aiohttp
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from hai_backend.proxy import forward

BEAT = 0.05
MANY = 20  # pings on each side
Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def proxied(serve: Serve) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """The address of a proxy before a service whose websockets `serve` sees, pings and all."""

    async def service(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        await serve(socket)
        return socket

    behind = web.Application()
    behind.router.add_get("/", service)
    async with (
        TestServer(behind) as service_side,
        forward.new_client(aiohttp.TCPConnector()) as ours,
    ):

        async def front(request: web.Request) -> web.StreamResponse:
            passage = forward.ForwardedRequest(
                request, f"{service_side.host}:{service_side.port}", "/", "u", "http", "c"
            )
            return await forward.forward_websocket(ours, passage, nullcontext, heartbeat=BEAT)

        before = web.Application()
        before.router.add_get("/", front)
        async with TestServer(before) as client_side, aiohttp.ClientSession() as browser:
            yield browser, str(client_side.make_url("/"))


async def pings(socket: web.WebSocketResponse | aiohttp.ClientWebSocketResponse) -> int:
    """Answer pings and nothing else."""
    for count in range(MANY):
        message = await socket.receive()
        if message.type is not WSMsgType.PING:
            return count
        await socket.pong(message.data)
    return MANY


async def echo(socket: web.WebSocketResponse) -> None:
    """Echo messages after many pings, which are answered."""
    assert await pings(socket) == MANY
    async for message in socket:
        if message.type is WSMsgType.PING:
            await socket.pong(message.data)
        elif message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)


async def answered(socket: aiohttp.ClientWebSocketResponse) -> str:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            return str(message.data)
        await socket.pong(message.data)
    raise AssertionError(f"closed with {socket.close_code}")


async def test_quiet_websocket_stays_open() -> None:
    async with (
        proxied(echo) as (browser, url),
        browser.ws_connect(url, autoping=False) as socket,
        asyncio.timeout(20),
    ):
        assert await pings(socket) == MANY
        await socket.send_str("still there")
        assert await answered(socket) == "still there"


async def test_service_without_pongs_is_closed() -> None:
    disconnected = asyncio.Event()

    async def silent(socket: web.WebSocketResponse) -> None:
        await disconnected.wait()

    async with (
        proxied(silent) as (browser, url),
        browser.ws_connect(url) as socket,
        asyncio.timeout(20),
    ):
        assert (await socket.receive()).type is WSMsgType.CLOSE
        assert socket.close_code == 1001
        disconnected.set()


async def test_browser_without_pongs_is_closed() -> None:
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def waits(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.type is WSMsgType.PING:
                await socket.pong(message.data)
        codes.put_nowait(socket.close_code)

    async with (
        proxied(waits) as (browser, url),
        browser.ws_connect(url, autoping=False),
        asyncio.timeout(20),
    ):
        assert await codes.get() is not None
