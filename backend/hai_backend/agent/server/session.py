"""Keeps a stream to the server open, and sends messages and log lines on it."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Protocol

from grpc import aio

from hai.client.connection.cancellation import raise_forgotten_cancellation
from hai.client.connection.stream_call import StreamCall
from hai.client.errors import explain_certificate
from hai.v1 import agent_service_pb2 as pb
from hai_backend.agent.coroutines import wait_out
from hai_backend.agent.lease import Lease
from hai_backend.agent.output.spool import PIECE_BYTES, Spool
from hai_backend.agent.rank_dir import RankDir, ServerAddress, write_agent_log
from hai_backend.agent.server.connection import (
    Connect,
    Connection,
    Stream,
    connect,
    is_rejected,
)
from hai_backend.agent.server.outgoing import Outgoing

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_BATCH_SECONDS = 0.05
# A factor of waits. It differs between agents, so that they do not attach or send lines at the same time.
_OUR_PACE = random.uniform(0.8, 1.2)
_LONGEST_PATIENCE = 4  # in multiples of the usual patience


class RankRejected(Exception):
    """The server rejects this rank, because its run has ended or another run has begun."""


class Peer(Protocol):
    """The methods of the agent that the session calls."""

    def hello(self, address: str) -> pb.AgentHello: ...
    def handle(self, response: pb.AttachResponse) -> None: ...


class Session:
    """The connection of one rank to a server. It tries all servers in turn until one answers."""

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
        # Seconds without any message after which a stream counts as broken
        self._patience = self._usual_patience = directory.timing().stream_patience
        self._sendable = asyncio.Event()
        self._connection: Connection | None = None  # None until the server has sent the welcome
        self._last_note = ""
        self._received_at = 0.0
        self._log_sent_at = 0.0
        self._log_delay = 0.0  # seconds for which the server lets us hold lines
        self._may_hold_lines = True
        self._wait = _FIRST_WAIT
        self._return_within = 0.0  # seconds over which the server lets agents spread their return
        self._next_server = 0  # the index of the server to try next
        self._heartbeat_count = 0
        # number of the heartbeat -> time by the clock of the lease
        self._heartbeats_sent_at: dict[int, float] = {}

    def wake(self) -> None:
        """Send the messages and lines that were added to the queue or the spool."""
        self._sendable.set()

    def send_lines_at_once(self) -> None:
        """Hold no lines from now on, because the rank may end at any time."""
        self._may_hold_lines = False
        self.wake()

    def beat(self, heartbeat: pb.Heartbeat | None = None) -> None:
        """Send a heartbeat, by default without a measurement. The answer of the server renews the lease."""
        if self._connection is None:
            # A queued heartbeat would be outdated when it is sent. Each new stream begins with a new one.
            return
        self._heartbeat_count += 1
        # Recorded before the heartbeat is sent, so that the lease may end too early but never too late.
        self._heartbeats_sent_at[self._heartbeat_count] = self._lease.now()
        if heartbeat is None:
            heartbeat = pb.Heartbeat(unmeasured=True)
        heartbeat.number = self._heartbeat_count
        self._outgoing.put("heartbeat", pb.AttachRequest(heartbeat=heartbeat))
        self.wake()

    def carry(self) -> StreamCall[pb.CarryRequest, pb.CarryResponse] | None:
        """Open a stream for a tunnel on the current connection; None if there is no connection now."""
        return self._connection.carry() if self._connection is not None else None

    async def run(self) -> None:
        """Attach repeatedly until cancelled. Raises RankRejected, or an exception group that contains Expired."""
        while True:
            await self._attach_once()
            if not self._directory.exists():
                raise RankRejected(f"{self._directory.path} was removed")
            await asyncio.sleep(self._wait * self._pace + self._spread())
            if self._next_server == 0:  # all servers were tried
                self._wait = min(2 * self._wait, _LONGEST_WAIT)

    def _spread(self) -> float:
        """Return the additional seconds to wait before the first try after a stream was lost, and 0 for later tries."""
        longest = min(
            self._return_within, self._usual_patience / 4
        )  # the lease must not expire meanwhile
        self._return_within = 0.0
        return random.uniform(0, longest)

    async def _attach_once(self) -> None:
        """Attach to the next server, until the stream ends. Raises RankRejected if the server rejects the rank."""
        try:
            servers = self._directory.servers()
            self._next_server = (self._next_server + 1) % len(servers)
            await self._attach(servers[self._next_server - 1])
        except aio.AioRpcError as error:
            self._note(_why(error))
            if is_rejected(error):
                raise RankRejected(str(error.details())) from error
        except (OSError, ValueError, KeyError) as error:
            # for example, while the server is being started
            self._note(f"no way to the server: {error}")

    def _note(self, message: str) -> None:
        """Log a message unless it is the same as the previous one, because the server may be unavailable for days."""
        if message != self._last_note:
            self._last_note = message
            write_agent_log(message)

    async def _attach(self, server: ServerAddress) -> None:
        """Use one stream from its hello to its end. Raises the AioRpcError or OSError that ended it."""
        async with self._connect(server, self._token) as connection:
            stream = connection.attach()
            try:
                async with asyncio.TaskGroup() as group:
                    welcomed = asyncio.Event()
                    group.create_task(self._write_all(stream, connection.address, welcomed))
                    group.create_task(self._end_when_silent(stream))
                    async for response in stream:
                        self._receive(response, connection, welcomed)
                    raise ConnectionError("the server has ended the stream")
            except* (aio.AioRpcError, OSError) as errors:
                error = errors.exceptions[0]  # both coroutines raise the same error
            finally:
                self._connection = None
                stream.cancel("the agent leaves the stream")
        raise_forgotten_cancellation()
        raise error

    async def _end_when_silent(self, stream: Stream) -> None:
        """End a stream on which nothing is received. A frozen server or lost packets do not end it by themselves.

        The patience grows, so that an overloaded server does not get new streams too often.
        """
        clock = asyncio.get_running_loop().time
        self._received_at = clock()
        await wait_out(lambda: self._received_at + self._patience - clock())
        stream.cancel(f"the server sent nothing for {clock() - self._received_at:.0f} s")
        self._patience = min(2 * self._patience, _LONGEST_PATIENCE * self._usual_patience)

    def _receive(
        self, response: pb.AttachResponse, connection: Connection, welcomed: asyncio.Event
    ) -> None:
        """Handle a message. After a welcome, send all messages again, and the log from the server's offset on."""
        self._received_at = asyncio.get_running_loop().time()
        match response.WhichOneof("message"):
            case "welcome":
                self._connection, self._wait = connection, _FIRST_WAIT
                self._log_delay = 0.0
                self._spool.resume(response.welcome.log_offset)
                self._outgoing.resend_all()
                self._heartbeats_sent_at.clear()  # heartbeats of earlier streams are never answered
                self._peer.handle(response)
                self.beat()  # at once, because the lease may be about to expire
                welcomed.set()
            case "heartbeat":
                self._renew_lease(response.heartbeat)
                self._log_delay = response.heartbeat.log_delay_seconds
                self._return_within = response.heartbeat.return_within_seconds
                self._spool.acknowledge(response.heartbeat.log_offset)
            case "log_acknowledged":
                self._spool.acknowledge(response.log_acknowledged.offset)
            case "log_followed":
                self._log_delay = response.log_followed.delay_seconds
                self.wake()
            case _:
                self._peer.handle(response)

    def _renew_lease(self, answer: pb.HeartbeatAnswered) -> None:
        """Renew the lease, counted from the time when the answered heartbeat was sent. Raises Expired."""
        self._patience = self._usual_patience
        sent_at = self._heartbeats_sent_at.get(answer.number)
        self._heartbeats_sent_at = {
            n: at for n, at in self._heartbeats_sent_at.items() if n > answer.number
        }
        if answer.lease_renewed and sent_at is not None:
            self._lease.renew(sent_at)

    async def _write_all(self, stream: Stream, address: str, welcomed: asyncio.Event) -> None:
        await stream.write(pb.AttachRequest(hello=self._peer.hello(address)))
        await welcomed.wait()
        while True:
            await self._write_next(stream)

    async def _write_next(self, stream: Stream) -> None:
        """Write the next message, else the next log lines. If there is nothing to write, wait."""
        self._sendable.clear()
        message = self._outgoing.next(self._spool.drained)
        if message is not None:
            if message.HasField("heartbeat") and self._log_delay > 0:
                self._add_log(message.heartbeat)
            await stream.write(message)
            self._outgoing.mark_written(message)
        elif (piece := self._spool.piece()) is None:
            await self._sendable.wait()
        elif (wait_seconds := self._batch_seconds(piece)) > 0:
            await self._wait_until_sendable(wait_seconds)
        else:
            await self._write_log(stream, *piece)

    async def _write_log(self, stream: Stream, offset: int, data: bytes) -> None:
        self._mark_log_sent(offset + len(data))
        await stream.write(pb.AttachRequest(log=pb.LogChunk(offset=offset, data=data)))

    def _add_log(self, heartbeat: pb.Heartbeat) -> None:
        """Add lines to a heartbeat, which is about to be written. If that fails, a new heartbeat replaces it."""
        if (piece := self._spool.piece()) is not None:
            offset, data = piece
            self._mark_log_sent(offset + len(data))
            heartbeat.log.CopyFrom(pb.LogChunk(offset=offset, data=data))

    def _mark_log_sent(self, offset: int) -> None:
        self._log_sent_at = asyncio.get_running_loop().time()
        self._spool.sent(offset)

    def _batch_seconds(self, piece: tuple[int, bytes]) -> float:
        """Return the seconds to wait for more lines. The first line is sent at once, many small ones in batches."""
        if len(piece[1]) > PIECE_BYTES // 2 or self._outgoing.next(log_is_sent=True) is not None:
            return 0.0
        delay = self._log_delay * self._pace if self._may_hold_lines else 0.0
        return self._log_sent_at + max(delay, _BATCH_SECONDS) - asyncio.get_running_loop().time()

    async def _wait_until_sendable(self, timeout: float) -> None:
        with suppress(TimeoutError):
            # Unlike wait_for, this never loses a cancellation that comes together with the event.
            async with asyncio.timeout(timeout):
                await self._sendable.wait()


def _why(error: aio.AioRpcError) -> str:
    wrong = explain_certificate(error.details() or "")[0]
    return (
        f"the server {wrong}"
        if wrong
        else f"the stream ended: {error.code().name}: {error.details()}"
    )
