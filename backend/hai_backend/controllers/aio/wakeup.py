"""Wakes up one loop. A notification that arrives while the loop is busy is kept, and several count as one."""

from __future__ import annotations

import asyncio


class Wakeup:
    """A notification for one waiting loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()

    async def wait(self, timeout: float) -> None:
        """Return on a notification, or after `timeout` seconds. Return at once if there was one since the last wait."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()
