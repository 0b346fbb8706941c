"""Descriptors of pipes and terminals that are read and written without blocking, and without reading ahead.

The pipe transports of asyncio read ahead, and lose what they have read when a terminal hangs up (EIO).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

PIECE_BYTES = 64 * 1024


class Descriptor:
    """A non-blocking descriptor, which this object owns and closes."""

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self._number = number
        self._loop = asyncio.get_running_loop()
        self.open = True

    @property
    def number(self) -> int:
        return self._number

    def read(self) -> bytes | None:
        """Return the bytes that can be read now; None if there are none yet; empty if the other end is closed."""
        try:
            return os.read(self._number, PIECE_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # EIO means that the last process on a terminal has ended
            return b""

    async def write(self, data: bytes) -> None:
        """Write all of `data`, as fast as the other end reads it.

        Raises OSError if no process has the other end open.
        """
        remaining = memoryview(data)
        while remaining:
            try:
                remaining = remaining[os.write(self._number, remaining) :]
            except BlockingIOError:
                await self._wait_until_writable()

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` repeatedly while there are bytes to read, until `stop_watching` is called."""
        self._loop.add_reader(self._number, callback)

    def stop_watching(self) -> None:
        """Stop calling the callback of `watch`."""
        self._loop.remove_reader(self._number)

    def close(self) -> None:
        """Close the descriptor. May be called again."""
        if self.open:
            self.open = False
            self._loop.remove_reader(self._number)
            self._loop.remove_writer(self._number)
            with suppress(OSError):
                os.close(self._number)

    async def _wait_until_writable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._number, _resolve, ready)
        try:
            await ready
        finally:
            if self.open:
                self._loop.remove_writer(self._number)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
