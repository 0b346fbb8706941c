"""A version number that only increases, and a way to wait for a larger one."""

from __future__ import annotations

import asyncio


class ChangeFeed:
    """Announces versions. It contains no data: watchers read the changes from the store or from memory."""

    def __init__(self, version: int = 0) -> None:
        self._version = version
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def version(self) -> int:
        """The largest version published."""
        return self._version

    def publish(self, version: int) -> None:
        """Announce that all changes up to `version` can be read."""
        if version <= self._version:
            return
        self._version = version
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def beyond(self, version: int) -> int:
        """Return as soon as the published version is larger than `version`."""
        while self._version <= version:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
        return self._version
