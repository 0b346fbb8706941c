"""Flow control of tunnels: limits how many bytes a sender may send before the receiver acknowledges them.

The windows of HTTP/2 are not enough: they buffer megabytes, and a receiver that stops reading its stream because one
direction is full would miss acknowledgements for the other direction.
"""

from __future__ import annotations

import asyncio

WINDOW_BYTES = 1024 * 1024
ACKNOWLEDGE_BYTES = WINDOW_BYTES // 4
"""The receiver acknowledges after every so many bytes."""


class SendWindow:
    """The state of one sender in one direction."""

    def __init__(self) -> None:
        self._sent = self._acknowledged = 0
        self._changed = asyncio.Event()

    def acknowledge(self, count: int) -> None:
        """Record that the receiver has processed `count` bytes since the beginning."""
        self._acknowledged = count
        self._changed.set()

    def unblock(self) -> None:
        """Let waiting senders continue, so that they can end. Call it when the receiver has disconnected."""
        self.acknowledge(1 << 62)

    async def reserve(self, size: int) -> None:
        """Wait until `size` more bytes may be sent."""
        while self._sent - self._acknowledged > WINDOW_BYTES:
            self._changed.clear()
            await self._changed.wait()
        self._sent += size


class ReceivedBytes:
    """Counts the bytes that one receiver has processed, and determines when to acknowledge them."""

    def __init__(self) -> None:
        self.count = self._reported = 0

    def add(self, size: int) -> bool:
        """Count `size` more bytes. Return whether the receiver must now send `count` to the sender."""
        self.count += size
        due = self.count - self._reported >= ACKNOWLEDGE_BYTES
        if due:
            self._reported = self.count
        return due
