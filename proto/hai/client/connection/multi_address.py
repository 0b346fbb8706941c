"""A connection to any of several addresses: each call uses the current channel.

Every server forwards calls to the leader, so any server that answers is enough. When the current one is not connected,
the next address is tried; nothing has been sent by then, so this is safe for every call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from grpc import ChannelConnectivity, aio

CONNECT_SECONDS = 2.0
"""The time for an address to connect, after which the next one is tried."""

FRESH_SECONDS = 2.0
"""Age at which a channel without a connection is replaced, as gRPC would wait up to 5 s between its attempts."""

_SETTLED = (
    ChannelConnectivity.READY,
    ChannelConnectivity.TRANSIENT_FAILURE,
    ChannelConnectivity.SHUTDOWN,
)


class MultiAddressChannel:
    """Acts as a channel for stubs. `make` opens a channel to an address on first use."""

    def __init__(self, addresses: Sequence[str], make: Callable[[str], aio.Channel]) -> None:
        self._addresses = addresses
        self._make = make
        self._channels: dict[str, tuple[aio.Channel, float]] = {}  # and when each was made
        self._index = 0

    async def connect(self) -> None:
        """Connect, if necessary to another address. When no address connects, the next call raises the error."""
        if len(self._addresses) == 1:
            self._replace_stale_channel()
            return
        for _ in self._addresses:
            self._replace_stale_channel()
            if await _connected(self._channel()):
                return
            self._index += 1

    def move_on(self) -> None:
        """The current server does not work: use the next one."""
        self._index += 1

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

    def _replace_stale_channel(self) -> None:
        """Replace a channel that has lost its server. Its open streams continue where the server still serves them."""
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
        return self._addresses[self._index % len(self._addresses)]


async def _connected(channel: aio.Channel) -> bool:
    state = channel.get_state(try_to_connect=True)
    with suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            while state not in _SETTLED:
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    return state is ChannelConnectivity.READY
