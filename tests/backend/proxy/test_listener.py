"""Connections of browsers are forwarded to the listener of the leader, never to the own listener."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from hai_backend.domain.errors import Unavailable
from hai_backend.proxy.listener import Listener, Receive, forward_to, refuse


class Counting:
    """A receiver that ends a chain of forwarded connections."""

    def __init__(self, receiver: Receive) -> None:
        self.connections = 0
        self._way = receiver

    async def receive(self, connection: socket.socket) -> None:
        self.connections += 1
        if self.connections > 3:
            connection.close()
        else:
            await self._way(connection)


@pytest.fixture
async def open_listener() -> AsyncIterator[Listener]:
    made = Listener("127.0.0.1", 0)
    made.open()
    yield made
    made.close()


def port_of(open_listener: Listener) -> int:
    return int(open_listener.address.rpartition(":")[2])


async def request(open_listener: Listener) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(open_listener))
    try:
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize(
    ("leader", "own_host"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("127.0.0.1", "0.0.0.0")],
)
async def test_connection_is_not_forwarded_to_the_own_listener(
    open_listener: Listener, leader: str, own_host: str
) -> None:
    receiver = Counting(forward_to(leader, port_of(open_listener), own_host))
    open_listener.set_receiver(receiver.receive)
    assert (await request(open_listener)).startswith(b"HTTP/1.1 503 ")
    assert receiver.connections == 1


async def test_leader_at_another_address_of_this_machine_is_reached(
    open_listener: Listener,
) -> None:
    port = port_of(open_listener)
    server = await asyncio.start_server(lambda _, there: _answer(there), "127.0.0.2", port)
    open_listener.set_receiver(forward_to("127.0.0.2", port, "127.0.0.1"))
    assert await request(open_listener) == b"here"
    server.close()


async def _answer(writer: asyncio.StreamWriter) -> None:
    writer.write(b"here")
    writer.close()


async def test_vanished_peer_is_noticed_within_minutes(
    open_listener: Listener,
) -> None:
    accepted: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

    async def receive(connection: socket.socket) -> None:
        accepted.set_result(connection)

    open_listener.set_receiver(receive)
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(open_listener))
    with await accepted as connection:
        tcp = socket.IPPROTO_TCP
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle = connection.getsockopt(tcp, socket.TCP_KEEPIDLE)
        probes = connection.getsockopt(tcp, socket.TCP_KEEPCNT)
        quiet = idle + probes * connection.getsockopt(tcp, socket.TCP_KEEPINTVL)
        assert quiet <= 120
        assert connection.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == quiet * 1000
    writer.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("host", "callers"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("[::1]", ["::1"]),
        ("[::]", ["127.0.0.1", "::1"]),
        ("0.0.0.0", ["127.0.0.1", "::1"]),
        ("localhost", ["localhost"]),
    ],
)
async def test_listener_accepts_ipv4_and_ipv6(host: str, callers: list[str]) -> None:
    open_listener = Listener(host, 0)
    open_listener.open()
    for caller in callers:
        reader, writer = await asyncio.open_connection(caller, port_of(open_listener))
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
    with pytest.raises(Unavailable, match="in use"):
        Listener(host, port_of(open_listener))
    open_listener.close()


async def test_failed_connection_is_closed_and_the_next_is_served(
    open_listener: Listener,
) -> None:
    async def fails(connection: socket.socket) -> None:
        raise RuntimeError("a bug")

    open_listener.set_receiver(fails)
    with capture_logs() as logs:
        assert await request(open_listener) == b""
        await asyncio.sleep(0)
    assert [log["why"] for log in logs] == ["RuntimeError('a bug')"]
    open_listener.set_receiver(refuse)
    assert (await request(open_listener)).startswith(b"HTTP/1.1 503 ")
