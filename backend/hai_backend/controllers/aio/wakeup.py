"""Wakes one loop. A notification while it works is kept, and several count as one."""

from __future__ import annotations

import asyncio


class Wakeup:
    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()

    async def wait(self, timeout: float) -> None:
        """Return when notified, at once if that happened since the last wait, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()
