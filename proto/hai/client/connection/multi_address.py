"""A connection to any of several addresses: each call takes the channel of the moment.

Every server passes calls on to the one that leads, so the first that answers will do. When none is connected, the next
address is tried; nothing has been sent by then, so this is safe for every call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from grpc import ChannelConnectivity, aio

CONNECT_SECONDS = 2.0
"""How long an address may take until the next one is tried."""

FRESH_SECONDS = 2.0
"""How old a channel without a connection may be: gRPC lets up to 5 s pass between its tries, we have waited already."""

_SETTLED = (
    ChannelConnectivity.READY,
    ChannelConnectivity.TRANSIENT_FAILURE,
    ChannelConnectivity.SHUTDOWN,
)


class MultiAddressChannel:
    """Looks like a channel to stubs. `make` opens a channel to an address; they are opened when they are needed."""

    def __init__(self, addresses: Sequence[str], make: Callable[[str], aio.Channel]) -> None:
        self._addresses = addresses
        self._make = make
        self._channels: dict[str, tuple[aio.Channel, float]] = {}  # and when each was made
        self._turn = 0

    async def connect(self) -> None:
        """Stay where we are connected, else move on; when nobody answers, the next call tells."""
        if len(self._addresses) == 1:
            self._try_anew()
            return
        for _ in self._addresses:
            self._try_anew()
            if await _connected(self._channel()):
                return
            self._turn += 1

    def move_on(self) -> None:
        """The server here cannot work: begin with the next one."""
        self._turn += 1

    async def close(self) -> None:
        """End every connection."""
        for channel, _ in self._channels.values():
            await channel.close()

    def unary_unary(self, *method: Any, **codec: Any) -> Any:
        return lambda *a, **k: self._channel().unary_unary(*method, **codec)(*a, **k)

    def unary_stream(self, *method: Any, **codec: Any) -> Any:
        return lambda *a, **k: self._channel().unary_stream(*method, **codec)(*a, **k)

    def stream_unary(self, *method: Any, **codec: Any) -> Any:
        return lambda *a, **k: self._channel().stream_unary(*method, **codec)(*a, **k)

    def stream_stream(self, *method: Any, **codec: Any) -> Any:
        return lambda *a, **k: self._channel().stream_stream(*method, **codec)(*a, **k)

    def _try_anew(self) -> None:
        """Leave a channel that has lost its server; streams of it that the server still serves go on."""
        if (address := self._address()) not in self._channels:
            return
        channel, made = self._channels[address]
        if (
            asyncio.get_running_loop().time() - made >= FRESH_SECONDS
            and channel.get_state() is ChannelConnectivity.TRANSIENT_FAILURE
        ):
            del self._channels[address]

    def _channel(self) -> aio.Channel:
        address = self._address()
        if address not in self._channels:
            now = asyncio.get_running_loop().time()
            self._channels[address] = self._make(address), now
        return self._channels[address][0]

    def _address(self) -> str:
        return self._addresses[self._turn % len(self._addresses)]


async def _connected(channel: aio.Channel) -> bool:
    state = channel.get_state(try_to_connect=True)
    with suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            while state not in _SETTLED:
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    return state is ChannelConnectivity.READY
