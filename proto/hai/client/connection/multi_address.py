"""Connects to any of several addresses. Each call uses the current channel.

Every server forwards calls to the leader, so one reachable server is enough. When the current server is not
connected, the next address is tried. Nothing has been sent at that time, so this is safe for every call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from grpc import ChannelConnectivity, aio

CONNECT_SECONDS = 2.0
"""Seconds in which an address must connect before the next one is tried."""

STALE_SECONDS = 2.0
"""Age at which a channel without a connection is replaced: gRPC would wait up to 5 s between its attempts."""

_SETTLED_STATES = (
    ChannelConnectivity.READY,
    ChannelConnectivity.TRANSIENT_FAILURE,
    ChannelConnectivity.SHUTDOWN,
)


class MultiAddressChannel:
    """A channel for stubs that has several addresses. `open_channel` opens a channel to an address on first use."""

    def __init__(
        self, addresses: Sequence[str], open_channel: Callable[[str], aio.Channel]
    ) -> None:
        self._addresses = addresses
        self._open_channel = open_channel
        # with the time when each was opened
        self._channels: dict[str, tuple[aio.Channel, float]] = {}
        self._index = 0

    async def connect(self) -> None:
        """Connect, if necessary to another address. If no address connects, the next call raises the error."""
        if len(self._addresses) == 1:
            self._replace_stale_channel()
            return
        for _ in self._addresses:
            self._replace_stale_channel()
            if await _wait_until_connected(self._current_channel()):
                return
            self._index += 1

    def use_next_address(self) -> None:
        """Use the next address, because the current server does not work."""
        self._index += 1

    async def close(self) -> None:
        """Close the channels of all addresses."""
        for channel, _ in self._channels.values():
            await channel.close()

    def unary_unary(self, *method: Any, **codec: Any) -> Any:
        return lambda *a, **k: self._current_channel().unary_unary(*method, **codec)(*a, **k)

    def unary_stream(self, *method: Any, **codec: Any) -> Any:
        return lambda *a, **k: self._current_channel().unary_stream(*method, **codec)(*a, **k)

    def stream_unary(self, *method: Any, **codec: Any) -> Any:
        return lambda *a, **k: self._current_channel().stream_unary(*method, **codec)(*a, **k)

    def stream_stream(self, *method: Any, **codec: Any) -> Any:
        return lambda *a, **k: self._current_channel().stream_stream(*method, **codec)(*a, **k)

    def _replace_stale_channel(self) -> None:
        """Discard a channel that has lost its server. A new one is opened; streams on the old one stay open."""
        if (address := self._current_address()) not in self._channels:
            return
        channel, opened_at = self._channels[address]
        if (
            asyncio.get_running_loop().time() - opened_at >= STALE_SECONDS
            and channel.get_state() is ChannelConnectivity.TRANSIENT_FAILURE
        ):
            del self._channels[address]

    def _current_channel(self) -> aio.Channel:
        address = self._current_address()
        if address not in self._channels:
            now = asyncio.get_running_loop().time()
            self._channels[address] = self._open_channel(address), now
        return self._channels[address][0]

    def _current_address(self) -> str:
        return self._addresses[self._index % len(self._addresses)]


async def _wait_until_connected(channel: aio.Channel) -> bool:
    """Wait until a channel has connected or failed. Return whether it has connected."""
    state = channel.get_state(try_to_connect=True)
    with suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            while state not in _SETTLED_STATES:
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    return state is ChannelConnectivity.READY
