"""Limits for slow connections, and for users who open too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from hai_backend.proxy.connections import ConnectionLimits, Connections

LIMITS = ConnectionLimits(head_seconds=0.2, idle_seconds=0.2, max_anonymous=3, max_per_user=2)
PATIENT = ConnectionLimits(head_seconds=60, max_anonymous=3, max_per_user=2)
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class ProxyServer:
    """A server behind guarded connections. `/NAME` is a request with a session of that user, `/` one without."""

    connections: Connections
    port: int
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    async def knock(self, *heads: str) -> Wire:
        """Open a connection and send these requests."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.opened.append(writer)
        for head in heads:
            writer.write(head.encode())
            if head.endswith("\r\n\r\n"):
                await asyncio.wait_for(reader.readuntil(b"END"), 30)
        return reader, writer


@asynccontextmanager
async def proxy_server(limits: ConnectionLimits) -> AsyncIterator[ProxyServer]:
    connections = Connections(limits)

    async def answer(request: web.Request) -> web.Response:
        connections.request_started(request.protocol)
        user = request.path.strip("/")
        full = bool(user) and not connections.assign_user(request.protocol, user)
        return web.Response(text="full END" if full else "END")

    application = web.Application()
    application.router.add_get("/{user:.*}", answer)
    runner = web.AppRunner(application, keepalive_timeout=limits.idle_seconds, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    made = runner.server
    server = await asyncio.get_running_loop().create_server(
        lambda: connections.guard(made), "127.0.0.1", 0
    )
    found = ProxyServer(connections, server.sockets[0].getsockname()[1])
    try:
        yield found
    finally:
        for writer in found.opened:
            writer.transport.abort()
        server.close()
        await runner.cleanup()


def send_request(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"


async def ended(wire: Wire) -> bool:
    """Check that the other side closes the connection soon."""
    try:
        async with asyncio.timeout(10):
            return await wire[0].read() == b""
    except ConnectionResetError:
        return True


def is_open(wire: Wire) -> bool:
    return not wire[0].at_eof() and wire[0].exception() is None


@pytest.mark.parametrize(
    "heads",
    [
        pytest.param((), id="says nothing"),
        pytest.param(("GET / HTTP/1.1\r\nHost: x\r\nX: ",), id="a head without end"),
        pytest.param((send_request("/"), "GET / HT"), id="a second head without end"),
        pytest.param((send_request("/eve"), "GET / HT"), id="signed in, a head without end"),
        pytest.param((send_request("/eve"),), id="signed in, asks nothing more"),
    ],
)
async def test_connection_without_a_request_is_aborted(heads: tuple[str, ...]) -> None:
    async with proxy_server(LIMITS) as here:
        wire = await here.knock(*heads)
        assert here.connections.count == 1
        assert await ended(wire)
        assert here.connections.count == 0


async def test_single_bytes_do_not_extend_the_timeout() -> None:
    async with proxy_server(LIMITS) as here:
        _, writer = await here.knock("GET / HTTP/1.1\r\n")

        async def drip() -> None:
            while not writer.transport.is_closing():
                writer.write(b"X")
                await asyncio.sleep(0.02)

        async with asyncio.timeout(10):
            await drip()


async def test_oldest_anonymous_connection_is_closed_and_users_are_kept() -> None:
    async with proxy_server(PATIENT) as here:
        user = await here.knock(send_request("/eve"))
        strangers = [await here.knock(send_request("/")) for _ in range(5)]
        assert [await ended(wire) for wire in strangers[:2]] == [True, True]
        assert all(is_open(wire) for wire in (user, *strangers[2:]))
        assert here.connections.count == 4


async def test_connections_are_limited_per_user() -> None:
    async with proxy_server(PATIENT) as here:
        for _ in range(2):
            await here.knock(send_request("/eve"))
        reader, writer = await here.knock()
        writer.write(send_request("/eve").encode())
        assert b"full END" in await reader.readuntil(b"END")
        await here.knock(send_request("/bob"))
        here.opened[0].transport.abort()
        for _ in range(1000):
            if here.connections.count == 3:
                break
            await asyncio.sleep(0.01)
        writer.write(send_request("/eve").encode())
        assert b"full" not in await reader.readuntil(b"END")


async def test_shared_connection_counts_for_its_last_user() -> None:
    """An ingress shares connections between users."""
    async with proxy_server(PATIENT) as here:
        for _ in range(2):
            await here.knock(send_request("/eve"), send_request("/bob"))
        reader, writer = await here.knock()
        for user, is_refused in (("eve", False), ("bob", True)):
            writer.write(send_request(f"/{user}").encode())
            assert (b"full" in await reader.readuntil(b"END")) is is_refused


async def test_failed_connection_is_not_counted() -> None:
    connections = Connections(PATIENT)
    guarded = connections.guard(asyncio.Protocol)
    assert connections.count == 1
    guarded.on_closed()
    guarded.on_closed()
    assert connections.count == 0
