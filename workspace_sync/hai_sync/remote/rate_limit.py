"""How fast contents may travel, on lines that others need too."""

from __future__ import annotations

import asyncio


class RateLimit:
    """So many bytes a second on average; 0: as fast as it goes. A message that is short enough never waits."""

    def __init__(self, bytes_a_second: int = 0) -> None:
        self._rate = bytes_a_second
        self._free_at = 0.0

    async def turn(self, size: int) -> None:
        """Return when a message of this size may follow those before it."""
        if not self._rate:
            return
        now = asyncio.get_running_loop().time()
        begins = max(now, self._free_at)
        self._free_at = begins + size / self._rate
        if begins > now:
            await asyncio.sleep(begins - now)
