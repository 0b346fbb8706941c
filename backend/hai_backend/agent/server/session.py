"""The stream to the server: opens it again whenever it ends, and sends messages and log lines on it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Protocol

from grpc import aio

from hai.client.connection.cancellation import raise_forgotten_cancellation
from hai.client.connection.stream_call import StreamCall
from hai.client.errors import explain_certificate
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.lease import Lease
from hai_backend.agent.output import agent_log
from hai_backend.agent.output.spool import PIECE_BYTES, Spool
from hai_backend.agent.rank_dir import RankDir, ServerAddress
from hai_backend.agent.server.connection import Connect, Connection, Stream, connect
from hai_backend.agent.server.errors import is_rejected
from hai_backend.agent.server.outgoing import Outgoing
from hai_backend.agent.task_group import until

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_BATCH_SECONDS = 0.05
_OUR_PACE = 0.8 + 0.4 * (os.getpid() % 97) / 97  # not all agents at one moment
_LONGEST_PATIENCE = 4  # times the usual one


class RankRejected(Exception):
    """The server rejects this rank: its run has ended, or another one has begun."""


class Peer(Protocol):
    """What the session needs of the agent."""

    def hello(self, address: str) -> pb.AgentHello: ...
    def take(self, response: pb.AttachResponse) -> None: ...


class Session:
    """`run` ends only by raising GivenUp, or a group with Expired (or by being cancelled)."""

    def __init__(
        self,
        directory: RankDir,
        token: str,
        peer: Peer,
        outgoing: Outgoing,
        spool: Spool,
        lease: Lease,
        connect: Connect = connect,
        pace: float = _OUR_PACE,
    ) -> None:
        self._directory = directory
        self._token = token
        self._peer = peer
        self._outgoing = outgoing
        self._spool = spool
        self._lease = lease
        self._connect = connect
        self._pace = pace
        self._patience = self._usual_patience = directory.timing().stream_patience
        self._sendable = asyncio.Event()
        self._connection: Connection | None = None  # while the server answers on it
        self._last_note = ""
        self._received_at = 0.0
        self._log_sent_at = 0.0
        self._wait = _FIRST_WAIT
        self._turn = 0  # which of the servers is tried: the first one again when it was the last
        self._beats = 0
        self._beats_sent: dict[int, float] = {}  # when, by the clock of the lease

    def wake(self) -> None:
        """Something new is to be sent."""
        self._sendable.set()

    def beat(self, use: pb.Heartbeat | None = None) -> None:
        """Send a heartbeat, with a measurement if there is one; its answer renews the lease."""
        if self._connection is None:
            return  # it would be old when it is sent; each new stream begins with one
        self._beats += 1
        self._beats_sent[self._beats] = (
            self._lease.now()
        )  # before it is sent: the lease ends too early, never late
        beat = use if use is not None else pb.Heartbeat(unmeasured=True)
        beat.number = self._beats
        self._outgoing.put("heartbeat", pb.AttachRequest(heartbeat=beat))
        self.wake()

    def carry(self) -> StreamCall[pb.CarryRequest, pb.CarryResponse] | None:
        """A stream for one tunnel on the current connection; None: there is none now."""
        return self._connection.carry() if self._connection is not None else None

    async def run(self) -> None:
        """Attach, and attach again. Raises GivenUp, or a group of errors with Expired."""
        while True:
            await self._try()
            if not self._directory.exists():
                raise RankRejected(f"{self._directory.path} was removed")
            await asyncio.sleep(self._wait * self._pace)
            if self._turn == 0:  # all were tried
                self._wait = min(2 * self._wait, _LONGEST_WAIT)

    async def _try(self) -> None:
        try:
            servers = self._directory.servers()
            self._turn = (self._turn + 1) % len(servers)
            await self._attach(servers[self._turn - 1])
        except aio.AioRpcError as error:
            self._note(_why(error))
            if is_rejected(error):
                raise RankRejected(str(error.details())) from error
        except (OSError, ValueError, KeyError) as error:
            self._note(f"no way to the server: {error}")  # the server is being started

    def _note(self, message: str) -> None:
        """To agent.log, once per change: the server may be away for days."""
        if message != self._last_note:
            self._last_note = message
            agent_log.note(message)

    async def _attach(self, server: ServerAddress) -> None:
        """One stream, from hello to its end. Raises its AioRpcError."""
        async with self._connect(server, self._token) as connection:
            stream = connection.attach()
            try:
                async with asyncio.TaskGroup() as parts:
                    welcomed = asyncio.Event()
                    parts.create_task(self._write_all(stream, connection.address, welcomed))
                    parts.create_task(self._end_when_silent(stream))
                    async for response in stream:
                        self._receive(response, connection, welcomed)
                    raise ConnectionError("the server has ended the stream")
            except* (aio.AioRpcError, OSError) as errors:
                ended = errors.exceptions[0]  # the other parts report the same
            finally:
                self._connection = None
                stream.cancel("the agent leaves the stream")
        raise_forgotten_cancellation()
        raise ended

    async def _end_when_silent(self, stream: Stream) -> None:
        """End a stream on which nothing arrives: a frozen server or dropped packets do not end it.

        The timeout grows, so that an overloaded server does not get new streams again and again.
        """
        clock = asyncio.get_running_loop().time
        self._received_at = clock()
        await until(lambda: self._received_at + self._patience - clock())
        stream.cancel(f"nothing was heard of the server for {clock() - self._received_at:.0f} s")
        self._patience = min(2 * self._patience, _LONGEST_PATIENCE * self._usual_patience)

    def _receive(
        self, response: pb.AttachResponse, connection: Connection, welcomed: asyncio.Event
    ) -> None:
        self._received_at = asyncio.get_running_loop().time()
        match response.WhichOneof("message"):
            case "welcome":
                self._connection, self._wait = connection, _FIRST_WAIT
                self._spool.begin(response.welcome.log_offset)
                self._outgoing.reopened()
                self._beats_sent.clear()  # nobody will answer those of an earlier stream
                self._peer.take(response)
                self.beat()  # the lease may be short by now
                welcomed.set()
            case "heartbeat":
                self._answered(response.heartbeat)
            case "log_acknowledged":
                self._spool.acknowledge(response.log_acknowledged.offset)
            case _:
                self._peer.take(response)

    def _answered(self, answer: pb.HeartbeatAnswered) -> None:
        """Renew the lease from when the answered heartbeat was sent. Raises Expired."""
        self._patience = self._usual_patience
        sent_at = self._beats_sent.get(answer.number)
        self._beats_sent = {n: at for n, at in self._beats_sent.items() if n > answer.number}
        if answer.lease_renewed and sent_at is not None:
            self._lease.renew(sent_at)

    async def _write_all(self, stream: Stream, address: str, welcomed: asyncio.Event) -> None:
        await stream.write(pb.AttachRequest(hello=self._peer.hello(address)))
        await welcomed.wait()
        while True:
            await self._write_next(stream)

    async def _write_next(self, stream: Stream) -> None:
        self._sendable.clear()
        message = self._outgoing.next(self._spool.drained)
        if message is not None:
            await stream.write(message)
            self._outgoing.written(message)
        elif (piece := self._spool.piece()) is None:
            await self._sendable.wait()
        elif (wait_seconds := self._batch_seconds(piece)) > 0:
            await self._sendable_or(wait_seconds)
        else:
            await self._write_log(stream, *piece)

    async def _write_log(self, stream: Stream, offset: int, data: bytes) -> None:
        self._log_sent_at = asyncio.get_running_loop().time()
        self._spool.sent(offset + len(data))
        await stream.write(pb.AttachRequest(log=pb.LogChunk(offset=offset, data=data)))

    def _batch_seconds(self, piece: tuple[int, bytes]) -> float:
        """How long to wait for more lines: the first line is sent at once, many small ones are batched."""
        if len(piece[1]) > PIECE_BYTES // 2 or self._outgoing.next(log_is_sent=True) is not None:
            return 0.0
        return self._log_sent_at + _BATCH_SECONDS - asyncio.get_running_loop().time()

    async def _sendable_or(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._sendable.wait(), seconds)


def _why(error: aio.AioRpcError) -> str:
    wrong = explain_certificate(error.details() or "")[0]
    return (
        f"the server {wrong}"
        if wrong
        else f"the stream ended: {error.code().name}: {error.details()}"
    )
