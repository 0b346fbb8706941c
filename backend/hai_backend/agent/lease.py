"""How long an agent may go on without a server: a server that hears nothing of a node starts its ranks elsewhere.

The lease is held while a stream to a server is open, and runs out `fence_after` seconds after it broke. An agent that
is cut off notices a dead stream only by its keep-alive (50 s), so it ends a little earlier than the server counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_NOTICED_SECONDS = 60.0  # within which a dead stream is noticed
_MOST_OF_IT = 0.2


class Fenced(Exception):
    """No server was reached for so long that another agent may have this rank."""


class Lease:
    """`fence_after` 0: it never runs out."""

    def __init__(self, fence_after: float) -> None:
        self._seconds = fence_after - min(_NOTICED_SECONDS, _MOST_OF_IT * fence_after)
        self._fence_after = fence_after
        self._held = False
        self._since = _now()
        self._limit: asyncio.Timeout | None = None

    def hold(self) -> None:
        """A server answers."""
        self._held = True
        self._set()

    def release(self) -> None:
        """The stream broke, if there was one."""
        if self._held:
            self._held, self._since = False, _now()
            self._set()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Raises Fenced as soon as the lease has run out."""
        self._limit = limit = asyncio.timeout(None)
        try:
            async with limit:
                self._set()
                yield
        except TimeoutError:
            if limit.expired():
                raise Fenced(f"no server was reached for {self._seconds:.0f} s") from None
            raise
        finally:
            self._limit = None

    def _set(self) -> None:
        if self._limit is not None and not self._limit.expired():
            free = self._held or not self._fence_after
            self._limit.reschedule(None if free else self._since + self._seconds)


def _now() -> float:
    return asyncio.get_running_loop().time()
