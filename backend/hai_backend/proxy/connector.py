"""aiohttp's client over tunnels: a connection of its pool is a tunnel into a rank, kept open for the next request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from hai.v1.agent_service_pb2 import CarryResponse
from hai.v1.tunnel_pb2 import TunnelEnd, TunnelTarget
from hai_backend.controllers.cluster.tunnels import PIECE_BYTES, Tunnel, Tunnels
from hai_backend.domain.errors import HaiError
from hai_backend.launch.base import RankKey

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.tracing import Trace

PER_TASK = 64
_KEPT_SECONDS = 30.0
_HIGH_WATER = 4 * PIECE_BYTES


class Unreached(OSError):
    """The service cannot be reached; `error` says why."""

    def __init__(self, error: HaiError) -> None:
        super().__init__(str(error))
        self.error = error


def host_of(key: RankKey, service: str) -> str:
    """How a service of a rank is called inside: one pool of connections each, never that of another run."""
    return f"{key}.{service}.rank"


class TunnelConnector(aiohttp.BaseConnector):
    """Connects to hosts that `host_of` names."""

    def __init__(self, tunnels: Tunnels) -> None:
        super().__init__(limit=0, limit_per_host=PER_TASK, keepalive_timeout=_KEPT_SECONDS)
        self._tunnels = tunnels

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        rank, service, _ = (req.url.host or "").split(".")
        key = RankKey(*(int(word) for word in rank.split("-")))
        stack = ExitStack()
        user = f"the proxy for task {key.task_id}"
        try:
            target = TunnelTarget(service=service)
            tunnel = stack.enter_context(
                self._tunnels.opened(key, target, user, limit=2 * PER_TASK)
            )
            await tunnel.reached()
        except HaiError as error:
            stack.close()
            raise Unreached(error) from error
        except BaseException:
            stack.close()
            raise
        protocol: ResponseHandler = self._factory()
        TunnelTransport(tunnel, protocol, stack.close)
        return protocol


class TunnelTransport(asyncio.Transport):
    """A tunnel as asyncio knows connections. `closed` is called once at the end."""

    def __init__(
        self, tunnel: Tunnel, protocol: asyncio.Protocol, closed: Callable[[], None]
    ) -> None:
        super().__init__()
        self._tunnel = tunnel
        self._protocol = protocol
        self._closed = closed
        self._closing = False
        self._outgoing = bytearray()
        self._wanted = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._paused = False
        self._loop = asyncio.get_running_loop()
        protocol.connection_made(self)
        self._work = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See asyncio.WriteTransport."""
        if self._closing:
            return
        self._outgoing += data
        self._wanted.set()
        if len(self._outgoing) > _HIGH_WATER and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """What was written still goes out."""
        self._closing = True
        self._wanted.set()
        self._reading.set()

    def abort(self) -> None:
        """Nothing more goes out."""
        self._outgoing.clear()
        self.close()

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return self._closing

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._reading.clear()

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._reading.set()

    def is_reading(self) -> bool:
        """See asyncio.ReadTransport."""
        return self._reading.is_set()

    def can_write_eof(self) -> bool:
        """HTTP needs no half-closed connections."""
        return False

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport."""
        return len(self._outgoing)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See asyncio.BaseTransport."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See asyncio.BaseTransport."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket to tell of."""
        return default

    async def _read(self) -> None:
        try:
            while (message := await self._tunnel.next_for_caller()) is not None:
                await self._reading.wait()
                if self._closing or message.WhichOneof("message") != "data":
                    break
                self._protocol.data_received(message.data)
        finally:
            self._end()

    async def _write(self) -> None:
        try:
            await self._write_all()
        except BaseException:  # whoever waits for room would wait for ever
            self._end()
            raise

    async def _write_all(self) -> None:
        while True:
            await self._wanted.wait()
            while self._outgoing:
                piece = bytes(self._outgoing[:PIECE_BYTES])
                del self._outgoing[:PIECE_BYTES]
                if not await self._tunnel.send_to_rank(CarryResponse(data=piece)):
                    return
                self._go_on()
            if self._closing:
                await self._tunnel.send_to_rank(CarryResponse(end=TunnelEnd()))
                return self._end()
            self._wanted.clear()

    def _go_on(self) -> None:
        if self._paused and len(self._outgoing) <= _HIGH_WATER // 2:
            self._paused = False
            self._protocol.resume_writing()

    def _end(self) -> None:
        """Once, whichever side comes first."""
        self._closing = True
        if self._work:
            work, self._work = self._work, []
            for each in work:
                if each is not asyncio.current_task():
                    each.cancel()
            self._closed()
            self._loop.call_soon(self._protocol.connection_lost, None)
