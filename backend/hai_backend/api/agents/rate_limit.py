"""How fast the server listens to one rank: an agent that has gone wild must not take the time of all others.

Nobody is refused: what is not read yet waits with the agent, which bundles it.
"""

from __future__ import annotations

import asyncio

from hai_backend.launch.base import RankKey

_REMEMBERED = 20_000  # ranks; beyond that all begin anew


class RateLimit:
    """A bucket of messages for each rank, over all its streams."""

    def __init__(self, per_second: float, at_once: float) -> None:
        self._per_second = per_second
        self._at_once = at_once
        self._buckets: dict[RankKey, tuple[float, float]] = {}

    async def turn(self, key: RankKey, messages: float = 1.0) -> bool:
        """Return when so many more are due; True when that was not at once."""
        now = asyncio.get_running_loop().time()
        left, since = self._buckets.get(key, (self._at_once, now))
        left = min(self._at_once, left + (now - since) * self._per_second) - messages
        if len(self._buckets) > _REMEMBERED:
            self._buckets.clear()
        self._buckets[key] = (left, now)
        if left >= 0:
            return False
        await asyncio.sleep(-left / self._per_second)
        return True
