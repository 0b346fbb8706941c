"""Descriptors of pipes and terminals, read and written without blocking, and only when somebody asks.

asyncio's own pipe transports read ahead and lose what they have read when a terminal hangs up (EIO).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

PIECE_BYTES = 64 * 1024


class Descriptor:
    """Owns the descriptor."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self._number = number
        self._loop = asyncio.get_running_loop()
        self.open = True

    @property
    def number(self) -> int:
        return self._number

    def read(self) -> bytes | None:
        """What is there now; None: nothing yet. Empty: nobody holds the other end any more."""
        try:
            return os.read(self._number, PIECE_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # EIO: the last process on a terminal has gone
            return b""

    async def write(self, data: bytes) -> None:
        """All of it, as fast as the other end takes it. Raises OSError when nobody does."""
        remaining = memoryview(data)
        while remaining:
            try:
                remaining = remaining[os.write(self._number, remaining) :]
            except BlockingIOError:
                await self._writable()

    def when_readable(self, callback: Callable[[], None]) -> None:
        """Call `tell`, again and again while there is something to read, until `quiet`."""
        self._loop.add_reader(self._number, callback)

    def stop_watching(self) -> None:
        """See when_readable."""
        self._loop.remove_reader(self._number)

    def close(self) -> None:
        """Twice is not an error."""
        if self.open:
            self.open = False
            self._loop.remove_reader(self._number)
            self._loop.remove_writer(self._number)
            with suppress(OSError):
                os.close(self._number)

    async def _writable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._number, _settle, ready)
        try:
            await ready
        finally:
            if self.open:
                self._loop.remove_writer(self._number)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
