"""The proxy causes the faults that its table lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.silence.network.proxy import Direction, Proxy, proxy_to

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
FORTH, BACK = Direction.FORTH, Direction.BACK


class Line:
    """Both ends of a connection through the proxy: `near` has connected, `far` is the target's side."""

    def __init__(self, proxy: Proxy, near: Streams, far: Streams) -> None:
        self.proxy, self.near, self.far = proxy, near, far

    def say(self, text: bytes, way: Direction = FORTH) -> None:
        (self.near if way is FORTH else self.far)[1].write(text)

    async def hear(self, text: bytes, way: Direction = FORTH) -> None:
        reader = (self.far if way is FORTH else self.near)[0]
        async with asyncio.timeout(5):
            assert await reader.readexactly(len(text)) == text

    async def hears_nothing(self, way: Direction = FORTH) -> None:
        reader = (self.far if way is FORTH else self.near)[0]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read(1)

    async def echo(self) -> None:
        """Check that both directions work."""
        for way in Direction:
            self.say(b"still here", way)
            await self.hear(b"still here", way)


class Target:
    """A server that accepts connections and puts them into a queue."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[Streams] = asyncio.Queue()
        self.proxy: Proxy

    async def line(self) -> Line:
        host, _, port = self.proxy.address.rpartition(":")
        near = await asyncio.open_connection(host, int(port))
        return Line(self.proxy, near, await self.accepted.get())


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    made, writers = Target(), []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        made.accepted.put_nowait((reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, proxy_to(f"127.0.0.1:{port}") as made.proxy:
        yield made
        for writer in writers:
            writer.transport.abort()


@pytest.fixture
async def line(target: Target) -> AsyncIterator[Line]:
    made = await target.line()
    await made.echo()
    yield made
    made.near[1].transport.abort()


async def test_what_is_held_arrives_later_and_in_order(line: Line) -> None:
    line.proxy.hold(FORTH)
    line.say(b"one ")
    line.say(b"two")
    await line.hears_nothing()
    line.say(b"back", BACK)
    await line.hear(b"back", BACK)
    line.proxy.release()
    await line.hear(b"one two")
    await line.echo()


async def test_a_close_is_held_with_the_bytes_before_it(line: Line) -> None:
    line.proxy.hold()
    line.say(b"last")
    line.near[1].write_eof()
    await line.hears_nothing()
    line.proxy.release()
    await line.hear(b"last")
    assert await line.far[0].read() == b""


async def test_what_is_held_is_bounded(line: Line) -> None:
    line.proxy.hold(FORTH)
    line.near[1].write(b"x" * 64 * 1024 * 1024)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await line.near[1].drain()


async def test_a_connection_that_lost_bytes_carries_nothing_more_that_way(line: Line) -> None:
    line.proxy.drop(FORTH)
    line.say(b"lost")
    await line.hears_nothing()
    await line.proxy.heal()
    line.say(b"after it")
    await line.hears_nothing()
    line.say(b"back", BACK)
    await line.hear(b"back", BACK)
    line.near[1].write_eof()
    await line.hears_nothing()


async def test_who_connects_while_bytes_are_dropped_hears_nothing(target: Target) -> None:
    target.proxy.drop()
    line = await target.line()
    line.say(b"hello")
    await line.hears_nothing()
    line.near[1].transport.abort()


async def test_new_connections_work_after_healing(target: Target, line: Line) -> None:
    target.proxy.drop()
    await target.proxy.heal()
    again = await target.line()
    await again.echo()
    again.near[1].transport.abort()


@pytest.mark.parametrize("way", Direction)
async def test_one_side_hangs_up_and_the_other_does_not_know(line: Line, way: Direction) -> None:
    line.proxy.half_open()
    line.proxy.hang_up(way)
    gone, stays = (line.near, line.far) if way is FORTH else (line.far, line.near)
    assert await gone[0].read() == b""
    stays[1].write(b"anybody there?")
    await line.hears_nothing(way)
    stays[1].write(b"really?")
    await line.hears_nothing(way)


async def test_an_abort_is_not_passed_on_when_half_open(line: Line) -> None:
    line.proxy.half_open(FORTH)
    line.near[1].transport.abort()
    await line.hears_nothing()


async def test_a_close_is_passed_on(line: Line) -> None:
    line.near[1].close()
    assert await line.far[0].read() == b""
    line.far[1].close()
    await line.proxy.until_idle()


async def test_reset_is_heard_by_both(line: Line) -> None:
    line.proxy.hold()
    line.proxy.reset()
    for reader, _ in (line.near, line.far):
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_refuse_and_listen_again_on_the_same_port(target: Target, line: Line) -> None:
    before = target.proxy.address
    await target.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await target.line()
    await line.echo()
    await target.proxy.heal()
    assert target.proxy.address == before
    again = await target.line()
    await again.echo()
    again.near[1].transport.abort()


async def test_delay(line: Line) -> None:
    line.proxy.delay(0.1, BACK)
    line.say(b"soon")
    await line.hear(b"soon")
    began = asyncio.get_running_loop().time()
    line.say(b"later", BACK)
    await line.hear(b"later", BACK)
    assert asyncio.get_running_loop().time() - began >= 0.1


async def test_a_target_that_is_away_looks_like_one_that_hangs_up() -> None:
    async with proxy_to("127.0.0.1:1") as proxy:
        host, _, port = proxy.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
