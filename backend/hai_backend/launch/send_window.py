"""How far a sender of bytes may be ahead of who takes them: what nobody takes must not heap up on the way.

HTTP/2 windows alone let megabytes heap up; and a receiver that stops reading its stream, because one of its two
directions is full, would not hear that the other one may go on.
"""

from __future__ import annotations

import asyncio

LEAD_BYTES = 1024 * 1024
TELL_BYTES = LEAD_BYTES // 4
"""The receiver says how much it has taken whenever it is so much more than it said last."""


class SendWindow:
    """Of one sender in one direction."""

    def __init__(self) -> None:
        self._sent = self._taken = 0
        self._changed = asyncio.Event()

    def taken(self, count: int) -> None:
        """So many bytes, since the beginning."""
        self._taken = count
        self._changed.set()

    def give_up(self) -> None:
        """Nobody takes anything any more: who waits shall not wait for ever."""
        self.taken(1 << 62)

    async def room(self, size: int) -> None:
        """Wait until so many more bytes may be sent."""
        while self._sent - self._taken > LEAD_BYTES:
            self._changed.clear()
            await self._changed.wait()
        self._sent += size


class Taken:
    """Of one receiver: what it has taken, and whether the sender should hear of it."""

    def __init__(self) -> None:
        self.count = self._told = 0

    def add(self, size: int) -> bool:
        """So many more. True: tell `count`."""
        self.count += size
        tell = self.count - self._told >= TELL_BYTES
        if tell:
            self._told = self.count
        return tell
