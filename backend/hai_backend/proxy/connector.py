"""Runs the client of aiohttp over tunnels. A pooled connection is a tunnel to a rank that is kept open."""

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

MAX_PER_SERVICE = 64
_KEEPALIVE_SECONDS = 30.0
_HIGH_WATER = 4 * PIECE_BYTES


class ServiceUnreachable(OSError):
    """The service cannot be reached. `error` is the cause."""

    def __init__(self, error: HaiError) -> None:
        super().__init__(str(error))
        self.error = error


def internal_host(key: RankKey, service: str) -> str:
    """Return the internal host name of a service of a rank. It names the run, so that each run has its own pool."""
    return f"{key}.{service}.rank"


class TunnelConnector(aiohttp.BaseConnector):
    """Connects to host names that `internal_host` returns."""

    def __init__(self, tunnels: Tunnels) -> None:
        super().__init__(
            limit=0, limit_per_host=MAX_PER_SERVICE, keepalive_timeout=_KEEPALIVE_SECONDS
        )
        self._tunnels = tunnels

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        rank, service, _ = (req.url.host or "").split(".")
        key = RankKey(*(int(part) for part in rank.split("-")))
        stack = ExitStack()
        user = f"the proxy for task {key.task_id}"
        try:
            target = TunnelTarget(service=service)
            tunnel = stack.enter_context(
                self._tunnels.opened(key, target, user, limit=2 * MAX_PER_SERVICE)
            )
            await tunnel.wait_reached()
        except HaiError as error:
            stack.close()
            raise ServiceUnreachable(error) from error
        except BaseException:
            stack.close()
            raise
        protocol: ResponseHandler = self._factory()
        TunnelTransport(tunnel, protocol, stack.close)
        return protocol


class TunnelTransport(asyncio.Transport):
    """Adapts a tunnel to an asyncio transport. `on_closed` is called once at the end."""

    def __init__(
        self, tunnel: Tunnel, protocol: asyncio.Protocol, on_closed: Callable[[], None]
    ) -> None:
        super().__init__()
        self._tunnel = tunnel
        self._protocol = protocol
        self._on_closed = on_closed
        self._closing = False
        self._outgoing = bytearray()
        self._write_requested = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._paused = False
        self._loop = asyncio.get_running_loop()
        protocol.connection_made(self)
        self._tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self._outgoing += data
        self._write_requested.set()
        if len(self._outgoing) > _HIGH_WATER and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Close after pending data have been sent."""
        self._closing = True
        self._write_requested.set()
        self._reading.set()

    def abort(self) -> None:
        """Close without sending pending data."""
        self._outgoing.clear()
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def is_reading(self) -> bool:
        return self._reading.is_set()

    def can_write_eof(self) -> bool:
        """Return False: HTTP needs no half-closed connections."""
        return False

    def get_write_buffer_size(self) -> int:
        return len(self._outgoing)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the default: there is no socket."""
        return default

    async def _read(self) -> None:
        try:
            while (message := await self._tunnel.next_for_caller()) is not None:
                await self._reading.wait()
                if self._closing or message.WhichOneof("message") != "data":
                    break
                self._protocol.data_received(message.data)
        finally:
            self._finish()

    async def _write(self) -> None:
        try:
            await self._write_all()
        except BaseException:  # otherwise a paused writer would wait forever
            self._finish()
            raise

    async def _write_all(self) -> None:
        while True:
            await self._write_requested.wait()
            while self._outgoing:
                chunk = bytes(self._outgoing[:PIECE_BYTES])
                del self._outgoing[:PIECE_BYTES]
                if not await self._tunnel.send_to_rank(CarryResponse(data=chunk)):
                    return
                self._resume_protocol()
            if self._closing:
                await self._tunnel.send_to_rank(CarryResponse(end=TunnelEnd()))
                return self._finish()
            self._write_requested.clear()

    def _resume_protocol(self) -> None:
        if self._paused and len(self._outgoing) <= _HIGH_WATER // 2:
            self._paused = False
            self._protocol.resume_writing()

    def _finish(self) -> None:
        """End the transport once, when one side has ended."""
        self._closing = True
        if self._tasks:
            tasks, self._tasks = self._tasks, []
            for task in tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            self._on_closed()
            self._loop.call_soon(self._protocol.connection_lost, None)
