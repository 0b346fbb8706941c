"""Wakes one loop: rings while it works are remembered, many rings count as one."""

from __future__ import annotations

import asyncio


class Wakeup:
    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout: float) -> None:
        """Return at the next ring, at once if it rang since the last wait, or after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            pass
        self._rung.clear()
