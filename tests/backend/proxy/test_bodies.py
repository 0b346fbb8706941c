"""Slow and endless request bodies through the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from hai_backend.proxy import forward

PATIENCE = 0.2


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A proxy before a service that reads all of a body and says its size."""

    async def service(request: web.Request) -> web.StreamResponse:
        return web.Response(text=str(len(await request.read())))

    behind = web.Application(client_max_size=1 << 30)
    behind.router.add_route("*", "/{path:.*}", service)
    async with (
        TestServer(behind) as service_side,
        forward.new_client(aiohttp.TCPConnector()) as ours,
    ):

        async def front(request: web.Request) -> web.StreamResponse:
            host = f"{service_side.host}:{service_side.port}"
            passage = forward.ForwardedRequest(request, host, request.path, "u", "http", "c")
            try:
                return await forward.forward_request(ours, passage, "", PATIENCE)
            except forward.BodyTimeout:
                return web.Response(status=408)

        before = web.Application(client_max_size=0)
        before.router.add_route("*", "/{path:.*}", front)
        async with TestServer(before) as client_side, aiohttp.ClientSession() as browser:
            yield browser, str(client_side.make_url("/"))


async def pieces(count: int, pause: float) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x"
        await asyncio.sleep(pause)


async def test_slow_body_arrives_while_it_makes_progress() -> None:
    async with (
        proxied() as (browser, url),
        browser.post(url, data=pieces(12, PATIENCE / 8)) as answer,
    ):
        assert await answer.text() == "12"


async def test_stalled_body_times_out() -> None:
    async with proxied() as (browser, url):
        disconnected = asyncio.Event()

        async def stops() -> AsyncIterator[bytes]:
            yield b"x"
            await disconnected.wait()

        async with asyncio.timeout(10), browser.post(url, data=stops()) as answer:
            assert answer.status == 408
            disconnected.set()
