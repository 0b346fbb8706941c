"""The stream to the server: opened again for ever, and what goes out on it, in the order in which it matters."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from hai.client.ending import Ending
from hai.client.trust import trouble
from hai.v1 import agent_service_pb2 as pb
from hai.v1 import agent_service_pb2_grpc as rpc
from hai_backend.agent import journal
from hai_backend.agent.lease import Lease
from hai_backend.agent.outbox import Outbox
from hai_backend.agent.rank_dir import RankDir, ServerAddress
from hai_backend.agent.server_errors import given_up
from hai_backend.agent.spool import PIECE_BYTES, Spool

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_BATCH_SECONDS = 0.05
_OUR_PACE = 0.8 + 0.4 * (os.getpid() % 97) / 97  # not all agents at one moment
_SILENT_SECONDS = 30.0  # log was sent and nothing acknowledged: the stream is dead
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # our own back-off counts, not one shared by address
    ("grpc.enable_http_proxy", 0),  # http_proxy is for what programs load
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
)


class GivenUp(Exception):
    """The server does not want this rank any more."""


class Peer(Protocol):
    """What the session needs of the agent's life."""

    def hello(self, address: str) -> pb.AgentHello: ...
    def take(self, response: pb.AttachResponse) -> None: ...


class Session:
    """`run` ends only by raising GivenUp or Fenced (or by being cancelled)."""

    def __init__(
        self, directory: RankDir, token: str, peer: Peer, outbox: Outbox, spool: Spool
    ) -> None:
        self._directory = directory
        self._token = token
        self._peer = peer
        self._outbox = outbox
        self._spool = spool
        self._something = asyncio.Event()
        self._call: Any = None
        self._stub: Any = None  # while a stream is open
        self._said = ""
        self._progress = 0.0
        self._sent_log_at = 0.0
        self._wait = _FIRST_WAIT
        self._lease = Lease(directory.fence_after())
        self._turn = 0  # which of the servers is tried: the first one again when it was the last

    def wake(self) -> None:
        """There is something new to send."""
        self._something.set()

    def look(self) -> None:
        """Break a stream on which nothing is acknowledged any more; called with each heartbeat."""
        silent = time.monotonic() - self._progress
        if self._call is not None and self._spool.unacknowledged and silent > _SILENT_SECONDS:
            self._call.cancel()

    def carry(self) -> Any:
        """A stream for one tunnel, on the connection that we are attached by; None: on none just now."""
        return self._stub.Carry(metadata=self._metadata()) if self._stub is not None else None

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._token}"),)

    async def run(self) -> None:
        """Attach, and attach again. Raises GivenUp, Fenced."""
        while True:
            async with self._lease.watch():
                await self._try()
            if not self._directory.exists():
                raise GivenUp(f"{self._directory.path} was removed")
            async with self._lease.watch():
                await asyncio.sleep(self._wait * _OUR_PACE)
            if self._turn == 0:  # all were tried
                self._wait = min(2 * self._wait, _LONGEST_WAIT)

    async def _try(self) -> None:
        try:
            servers = self._directory.servers()
            self._turn = (self._turn + 1) % len(servers)
            await self._attach(servers[self._turn - 1])
        except grpc.aio.AioRpcError as error:
            self._say(_why(error))
            if given_up(error):
                raise GivenUp(str(error.details())) from error
        except (OSError, ValueError, KeyError) as error:
            self._say(f"no way to the server: {error}")  # the server is being started

    def _say(self, message: str) -> None:
        """To agent.log, once per change: the server may be away for days."""
        if message != self._said:
            self._said = message
            journal.note(message)

    async def _attach(self, server: ServerAddress) -> None:
        async with _channel(server) as channel:
            self._stub = stub = rpc.AgentServiceStub(channel)
            self._call = call = stub.Attach(metadata=self._metadata())
            ending, welcomed = Ending(call), asyncio.Event()
            writer = asyncio.ensure_future(self._write_all(server, welcomed))
            writer.add_done_callback(lambda _: call.cancel())  # nobody would read the rest
            try:
                async for response in call:
                    self._receive(response, welcomed)
            except grpc.aio.AioRpcError:
                raise await ending.status() from None
            finally:
                self._call = self._stub = None
                self._lease.release()
                writer.cancel()
                if writer.done() and not writer.cancelled():
                    writer.result()

    def _receive(self, response: pb.AttachResponse, welcomed: asyncio.Event) -> None:
        match response.WhichOneof("message"):
            case "welcome":
                self._wait = _FIRST_WAIT
                self._lease.hold()
                self._spool.begin(response.welcome.log_offset)
                self._outbox.reopened()
                self._progress = time.monotonic()
                self._peer.take(response)
                welcomed.set()
            case "log_acknowledged":
                self._progress = time.monotonic()
                self._spool.acknowledge(response.log_acknowledged.offset)
            case _:
                self._peer.take(response)

    async def _write_all(self, server: ServerAddress, welcomed: asyncio.Event) -> None:
        try:
            hello = self._peer.hello(await local_address(server.address))
            await self._call.write(pb.AttachRequest(hello=hello))
            await welcomed.wait()
            while True:
                await self._write_next()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the reading side says why

    async def _write_next(self) -> None:
        self._something.clear()
        message = self._outbox.next(self._spool.drained)
        if message is not None:
            await self._call.write(message)
            self._outbox.written(message)
        elif (piece := self._spool.piece()) is None:
            await self._something.wait()
        elif (left := self._batch_seconds(piece)) > 0:
            await self._something_or(left)
        else:
            await self._write_log(*piece)

    async def _write_log(self, offset: int, data: bytes) -> None:
        self._sent_log_at = time.monotonic()
        if not self._spool.unacknowledged:
            self._progress = self._sent_log_at
        await self._call.write(pb.AttachRequest(log=pb.LogChunk(offset=offset, data=data)))
        self._spool.sent(offset + len(data))

    def _batch_seconds(self, piece: tuple[int, bytes]) -> float:
        """How long to wait for more lines: a first one goes at once, a stream of small ones is bundled."""
        if len(piece[1]) > PIECE_BYTES // 2 or self._outbox.next(log_is_sent=True) is not None:
            return 0.0
        return self._sent_log_at + _BATCH_SECONDS - time.monotonic()

    async def _something_or(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._something.wait(), seconds)


def _why(error: grpc.aio.AioRpcError) -> str:
    wrong = trouble(error.details() or "")[0]
    return (
        f"the server {wrong}"
        if wrong
        else f"the stream ended: {error.code().name}: {error.details()}"
    )


async def local_address(server: str) -> str:
    """Our own address as the server's network sees it: siblings reach this rank there."""
    host, _, port = server.rpartition(":")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing: it only chooses the route
        return str(probe.getsockname()[0])


def _channel(server: ServerAddress) -> grpc.aio.Channel:
    if not server.ca:
        return grpc.aio.insecure_channel(server.address, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(Path(server.ca).read_bytes())
    return grpc.aio.secure_channel(server.address, credentials, options=_OPTIONS)
