"""The simulated network: streams between agents and servers, and its faults.

A link connects a node and the address of a server. Each direction of a link can hold packets back (they arrive later),
delay them, or drop them: a stream that has lost a packet delivers nothing more in that direction. A side learns only
from a packet that the other side has ended. As in gRPC, a stream that is cancelled ends at once on the side that
cancels it, and on the other side when a packet arrives.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from google.rpc import status_pb2
from grpc import StatusCode, aio

from hai.client.connection.stream_call import StreamCall
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.rank_dir import ServerAddress
from tests.support.simulation.channel import Fault, LinkDirection, StreamChannel
from tests.support.virtual_time import SimulatedProcess

T = TypeVar("T")
_WINDOW = 16  # a writer waits if more messages are on their way
_DETAILS = "grpc-status-details-bin"
_CODES = {code.value[0]: code for code in StatusCode}


@dataclass(frozen=True, slots=True)
class End:
    """The end of a stream, as one side reports it to the other."""

    code: StatusCode
    details: str = ""
    status: bytes = b""

    def error(self) -> aio.AioRpcError:
        trailing = ((_DETAILS, self.status),) if self.status else ()
        none: aio.Metadata = aio.Metadata.from_tuple(())
        return aio.AioRpcError(self.code, none, aio.Metadata.from_tuple(trailing), self.details)


class Server(Protocol):
    """What the network needs from a simulated server."""

    process: SimulatedProcess

    @property
    def listening(self) -> bool: ...
    def serve(self, stream: ServerStream) -> Coroutine[Any, Any, None]: ...


class Link:
    """The connection of a node and an address. `up` is the direction to the server."""

    def __init__(self) -> None:
        self.up, self.down = LinkDirection(), LinkDirection()
        self.streams: dict[AgentStream, None] = {}  # in the order in which they were opened


class _Signal:
    """Wakes one waiter."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


class AgentStream:
    """The agent's side of a stream. Implements hai_backend.agent.server.connection.Stream."""

    def __init__(self, network: Network, link: Link, address: str, token: str) -> None:
        self._link = link
        self._ended: End | None = None
        self._answers: deque[pb.AttachResponse] = deque()
        self._readable, self._writable = _Signal(), _Signal()
        self._up = StreamChannel[pb.AttachRequest | End](link.up, self._sent)
        self.peer = ServerStream(network, self, link, address, token)
        link.streams[self] = None

    def __aiter__(self) -> AsyncIterator[pb.AttachResponse]:
        return self

    async def __anext__(self) -> pb.AttachResponse:
        while not self._answers and self._ended is None:
            await self._or_cancel(self._readable.wait())
        if self._answers:
            return self._answers.popleft()
        assert self._ended is not None
        if self._ended.code is StatusCode.OK:
            raise StopAsyncIteration
        raise self._ended.error()

    async def write(self, message: pb.AttachRequest) -> None:
        """Send a message, and return when there is space for more. Raises the error of a stream that has ended."""
        if self._ended is None:
            self._up.send(message)
        while self._up.count > _WINDOW and self._ended is None:
            await self._or_cancel(self._writable.wait())
        if self._ended is not None:
            raise self._ended.error()

    def cancel(self, reason: str = "") -> None:
        """End the stream here. The server learns of it when the packet arrives."""
        if self._ended is None:
            self._up.send(End(StatusCode.CANCELLED, "the client has cancelled"))
            self._answers.clear()
            self.end(End(StatusCode.CANCELLED, reason))

    def end(self, end: End) -> None:
        """End the stream for the agent. The server is not informed."""
        if self._ended is None:
            self._ended = end
            self._link.streams.pop(self, None)
            self._readable.set()
            self._writable.set()

    def answer(self, item: pb.AttachResponse | End) -> None:
        """Receive a packet from the server."""
        if isinstance(item, End):
            self.end(item)
        elif self._ended is None:
            self._answers.append(item)
            self._readable.set()

    def _sent(self, item: pb.AttachRequest | End) -> None:
        self._writable.set()
        self.peer.receive(item)

    async def _or_cancel(self, waiting: Coroutine[Any, Any, None]) -> None:
        try:
            await waiting
        except asyncio.CancelledError:
            self.cancel("its reader or writer was cancelled")
            raise


class ServerStream:
    """The server's side of a stream: its requests, and the context of the call."""

    def __init__(
        self, network: Network, agent: AgentStream, link: Link, address: str, token: str
    ) -> None:
        self._network = network
        self._agent = agent
        self._link = link
        self._address = address
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._server: Server | None = None
        self._work: asyncio.Task[None] | None = None
        self._requests: deque[pb.AttachRequest] = deque()
        self._readable, self._writable = _Signal(), _Signal()
        self._down = StreamChannel[pb.AttachResponse | End](link.down, self._sent)
        self._over = False

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def requests(self) -> AsyncIterator[pb.AttachRequest]:
        """Yield the messages of the agent."""
        while True:
            while not self._requests:
                await self._readable.wait()
            yield self._requests.popleft()

    async def respond(self, message: pb.AttachResponse) -> None:
        """Send a message, and return when there is space for more."""
        self._down.send(message)
        while self._down.count > _WINDOW and not self._over:
            await self._writable.wait()

    def finish(self, end: End) -> None:
        """End the stream for the server, because the call or the process has ended."""
        if not self._over:
            self._over = True
            self._down.send(end)
            if self._server is not None:
                self._network.of(self._server).pop(self, None)

    def die(self) -> None:
        """End the stream because the server's process has ended: its kernel closes the connection."""
        if self._work is not None:
            self._work.cancel()
        self.finish(End(StatusCode.UNAVAILABLE, "Socket closed"))

    def receive(self, item: pb.AttachRequest | End) -> None:
        """Receive a packet from the agent."""
        if self._over or (self._server is None and not self._connect()):
            if not isinstance(item, End) and not self._link.down.dropping:
                self._refuse()
        elif isinstance(item, End):
            assert self._work is not None
            self._work.cancel()
            self.finish(item)
        else:
            self._requests.append(item)
            self._readable.set()

    def _connect(self) -> bool:
        server = self._network.at(self._address)
        if server is None or not server.listening:
            return False
        self._server = server
        self._network.of(server)[self] = None
        self._work = server.process.create_task(server.serve(self))
        return True

    def _refuse(self) -> None:
        """Answer that the connection is refused, even if the stream has lost packets."""
        reset = StreamChannel[pb.AttachResponse | End](self._link.down, self._agent.answer)
        reset.send(End(StatusCode.UNAVAILABLE, "failed to connect to the server"))

    def _sent(self, item: pb.AttachResponse | End) -> None:
        self._writable.set()
        self._agent.answer(item)


class Network:
    """All links, and which server listens on which address."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self._links: defaultdict[tuple[str, str], Link] = defaultdict(Link)
        self._servers: dict[str, Server] = {}
        self._streams: defaultdict[int, dict[ServerStream, None]] = defaultdict(dict)

    def link(self, node: str, address: str) -> Link:
        return self._links[node, address]

    def links(self, node: str) -> list[Link]:
        """Return the links between a node and all servers."""
        return [self.link(node, address) for address in self.addresses]

    def at(self, address: str) -> Server | None:
        return self._servers.get(address)

    def of(self, server: Server) -> dict[ServerStream, None]:
        """Return the open streams of a server."""
        return self._streams[id(server)]

    def listen(self, address: str, server: Server) -> None:
        """Let a server listen on an address."""
        self._servers[address] = server

    def die(self, server: Server) -> None:
        """Remove a server whose process has ended."""
        for address in [a for a, known in self._servers.items() if known is server]:
            del self._servers[address]
        for stream in list(self.of(server)):
            stream.die()
        self._streams.pop(id(server), None)

    def cut(self, node: str) -> None:
        """Hold back all packets of a node. Its streams stay open."""
        for link in self.links(node):
            link.up.add("cut", Fault(hold=True))
            link.down.add("cut", Fault(hold=True))

    def join(self, node: str) -> None:
        """Undo `cut`."""
        for link in self.links(node):
            link.up.remove("cut")
            link.down.remove("cut")

    def vanish(self, node: str) -> None:
        """End the streams of a node that has been switched off, without a packet to the servers."""
        for link in self.links(node):
            for stream in list(link.streams):
                stream.end(End(StatusCode.UNAVAILABLE, "the node is off"))

    def reset(self, node: str, address: str) -> None:
        """End the streams between a node and an address with an error on both sides."""
        for stream in list(self.link(node, address).streams):
            stream.end(End(StatusCode.UNAVAILABLE, "Connection reset by peer"))
            stream.peer.receive(End(StatusCode.UNAVAILABLE, "Connection reset by peer"))

    def connect_from(self, node: str) -> Connector:
        return Connector(self, node)


class Connector:
    """Connects the agents of one node. Implements hai_backend.agent.server.connection.Connect."""

    def __init__(self, network: Network, node: str) -> None:
        self._network = network
        self._node = node

    @asynccontextmanager
    async def __call__(self, server: ServerAddress, token: str) -> AsyncIterator[_Connection]:
        yield _Connection(self._network, self._node, server.address, token)


class _Connection:
    def __init__(self, network: Network, node: str, server: str, token: str) -> None:
        self.address = "10.0.0.1"
        self._network = network
        self._link = network.link(node, server)
        self._server, self._token = server, token

    def attach(self) -> AgentStream:
        return AgentStream(self._network, self._link, self._server, self._token)

    def carry(self) -> StreamCall[pb.CarryRequest, pb.CarryResponse]:
        raise AssertionError("there are no tunnels in a storm")


def end_of(status: status_pb2.Status) -> End:
    """Return the end of a stream for a status with details."""
    return End(_CODES[status.code], status.message, bytes(status.SerializeToString()))
