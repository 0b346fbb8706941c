"""A TCP proxy on loopback that can fall silent: between agents and a server, or between a server and its database.

After a *kill* or a *reset*, both sides learn at once that the connection has ended. In a silence, neither side learns
anything. The proxy can, for each direction and at any moment:

| call | what both sides see |
|---|---|
| `hold`, `release` | bytes wait, in order, and arrive later: a network that drops packets until TCP repeats them |
| `drop` | bytes are lost; the connection stays open, but carries nothing more that way: a forgotten NAT entry |
| `half_open`, `hang_up` | the close of one side is not passed on to the other; one side is closed |
| `delay` | each piece waits for some seconds |
| `refuse`, `reset` | connects are refused; connections are ended with RST, as in a fault without silence |

While bytes are held, the proxy accepts new connections but sends nothing, like the kernel of a stopped server. The
held bytes are limited: the proxy reads at most one piece ahead, and then the buffers of TCP fill up.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum

_PIECE_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST
_PORT_SECONDS, _PORT_TRIES = 0.01, 500


class Direction(StrEnum):
    """A direction of bytes: FORTH from the connecting side to the target, BACK from the target."""

    FORTH = "forth"
    BACK = "back"


BOTH = (Direction.FORTH, Direction.BACK)


class _Way:
    """The faults of one direction, for all connections."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.dropping = False
        self.passes_close = True
        self.delay_seconds = 0.0


class Connection:
    """One accepted connection (`near`) and its partner at the target (`far`)."""

    def __init__(
        self, ways: dict[Direction, _Way], near: socket.socket, far: socket.socket
    ) -> None:
        self._ways = ways
        self._ends = {Direction.FORTH: near, Direction.BACK: far}  # sources of bytes
        self._lossy: set[Direction] = set()  # directions that carry nothing more
        self.carried = dict.fromkeys(BOTH, 0)

    async def carry(self) -> None:
        """Carry bytes until both sides have closed. Pass a reset of one side on to the other."""
        try:
            async with asyncio.TaskGroup() as group:
                for direction in BOTH:
                    group.create_task(self._pump(direction))
        except* OSError:
            self.abort()
        finally:
            for end in self._ends.values():
                end.close()

    def drop(self, direction: Direction) -> None:
        """Carry nothing more in this direction."""
        self._lossy.add(direction)

    def abort(self) -> None:
        """End the connection with RST to both sides when it is closed."""
        for end in self._ends.values():
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def hang_up(self, direction: Direction) -> None:
        """Close the connection to the side that sends in this direction, as if the other side had closed it."""
        with suppress(OSError):
            self._ends[direction].shutdown(socket.SHUT_RDWR)

    async def _pump(self, direction: Direction) -> None:
        """Carry the bytes of one direction, with its faults."""
        way, sink = self._ways[direction], self._ends[_other(direction)]
        while data := await self._read(direction):
            if way.delay_seconds:
                await asyncio.sleep(way.delay_seconds)
            await way.open.wait()
            if way.dropping:
                self._lossy.add(direction)
            if direction not in self._lossy:
                await self._write(direction, data)
        await way.open.wait()
        if not way.passes_close or direction in self._lossy:
            await asyncio.Event().wait()  # the other side must not learn of the close
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    async def _read(self, direction: Direction) -> bytes:
        """Return the next bytes, or empty bytes if the side has closed.

        A reset raises an error. If closes are not passed on, it counts as a close.
        """
        way, source = self._ways[direction], self._ends[direction]
        try:
            return await asyncio.get_running_loop().sock_recv(source, _PIECE_BYTES)
        except ConnectionError:
            await way.open.wait()
            if way.passes_close and direction not in self._lossy:
                raise
            return b""

    async def _write(self, direction: Direction, data: bytes) -> None:
        sink, back = self._ends[_other(direction)], self._ways[_other(direction)]
        try:
            await asyncio.get_running_loop().sock_sendall(sink, data)
            self.carried[direction] += len(data)
        except ConnectionError:
            if back.passes_close:
                raise
            self._lossy.add(direction)  # the sender must not learn of the close


def _other(direction: Direction) -> Direction:
    return Direction.BACK if direction is Direction.FORTH else Direction.FORTH


class Proxy:
    """Listens on a port of loopback, and keeps the port even while it refuses connections. Use `proxy_to`."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._ways = {direction: _Way() for direction in BOTH}
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self._port = 0
        self.accepted = 0
        """Connections so far."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Those that are open, the oldest first."""
        return tuple(self._connections)

    def hold(self, *directions: Direction) -> None:
        """Hold back bytes and closes, by default in both directions."""
        for direction in directions or BOTH:
            self._ways[direction].open.clear()

    def release(self, *directions: Direction) -> None:
        """Deliver what was held, and hold no more."""
        for direction in directions or BOTH:
            self._ways[direction].open.set()

    def drop(self, *directions: Direction) -> None:
        """Discard all bytes. After `heal`, new connections work, but those that are open now carry nothing more."""
        for direction in directions or BOTH:
            self._ways[direction].dropping = True
            for connection in self._connections:
                connection.drop(direction)

    def pass_on(self, *directions: Direction) -> None:
        """Pass on the bytes and closes of new connections again."""
        for direction in directions or BOTH:
            self._ways[direction].dropping, self._ways[direction].passes_close = False, True

    def half_open(self, *directions: Direction) -> None:
        """Do not pass on closes and resets in these directions, by default in both."""
        for direction in directions or BOTH:
            self._ways[direction].passes_close = False

    def hang_up(self, direction: Direction) -> None:
        """Close the connections to the sides that send in this direction. The close may reach the other sides."""
        for connection in self._connections:
            connection.hang_up(direction)

    def delay(self, seconds: float, *directions: Direction) -> None:
        for direction in directions or BOTH:
            self._ways[direction].delay_seconds = seconds

    def reset(self) -> None:
        """End every connection with RST. Bytes that are held are lost."""
        for connection, work in self._connections.items():
            connection.abort()
            work.cancel()

    async def refuse(self) -> None:
        """Refuse new connections. Open connections stay."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
            self._listening = None

    async def heal(self) -> None:
        """Remove all faults, and deliver what was held."""
        for way in self._ways.values():
            way.open.set()
            way.dropping, way.passes_close, way.delay_seconds = False, True, 0.0
        await self.listen()

    async def listen(self) -> None:
        if self._listening is None:
            door = await self._bound()
            self._port = door.getsockname()[1]
            self._listening = asyncio.create_task(self._accept(door))

    async def until_idle(self) -> None:
        """Wait until no connection is open."""
        while self._connections:
            await asyncio.wait(self._connections.values())

    async def close(self) -> None:
        await self.refuse()
        work = [*self._connections.values(), *self._connecting]
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    async def _bound(self) -> socket.socket:
        """Return a listening socket. Retry while another process uses the port as the local end of a connection."""
        for left in reversed(range(_PORT_TRIES)):
            door = socket.socket()
            door.setblocking(False)
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                door.bind(("127.0.0.1", self._port))
                door.listen(128)
            except OSError:
                door.close()
                if not left:
                    raise
                await asyncio.sleep(_PORT_SECONDS)
            else:
                return door
        raise AssertionError

    async def _accept(self, door: socket.socket) -> None:
        with door:
            while True:
                near, _ = await asyncio.get_running_loop().sock_accept(door)
                near.setblocking(False)
                self.accepted += 1
                connecting = asyncio.create_task(self._connect(near))
                self._connecting.add(connecting)
                connecting.add_done_callback(self._connecting.discard)

    async def _connect(self, near: socket.socket) -> None:
        """Connect to the target, and carry bytes. If the target is unreachable, close the accepted connection."""
        far = socket.socket()
        far.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(far, self._target)
        except OSError:
            near.close()
            far.close()
            return
        except BaseException:
            near.close()
            far.close()
            raise
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self._ways, near, far)
        work = asyncio.create_task(connection.carry())
        self._connections[connection] = work
        work.add_done_callback(lambda _: self._connections.pop(connection, None))


@asynccontextmanager
async def proxy_to(target: str) -> AsyncIterator[Proxy]:
    """A listening proxy to HOST:PORT."""
    proxy = Proxy(target)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.close()
