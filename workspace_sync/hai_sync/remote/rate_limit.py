"""Limits the speed of transfers."""

from __future__ import annotations

import asyncio


class RateLimit:
    """Limits bytes a second on average; 0: no limit."""

    def __init__(self, bytes_a_second: int = 0) -> None:
        self._rate = bytes_a_second
        self._free_at = 0.0

    async def wait(self, size: int) -> None:
        """Waits until a message of this size may be sent."""
        if not self._rate:
            return
        now = asyncio.get_running_loop().time()
        starts_at = max(now, self._free_at)
        self._free_at = starts_at + size / self._rate
        if starts_at > now:
            await asyncio.sleep(starts_at - now)
