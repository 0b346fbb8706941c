"""The way from the servers of the storm to the API server. It may be cut off: then nothing is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from hai_backend.launch.kubernetes.errors import Unavailable
from hai_backend.launch.kubernetes.transport import Answer, Call
from hai_backend.testing.direct import DirectTransport
from hai_backend.testing.kube import FakeCluster


class StormTransport(DirectTransport):
    """Of one cluster, for all servers."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self._cuts = 0
        self._joined = asyncio.Event()
        self._joined.set()

    def cut(self) -> None:
        """No packet passes, until `join` was called as often."""
        self._cuts += 1
        self._joined.clear()

    def join(self) -> None:
        self._cuts -= 1
        if not self._cuts:
            self._joined.set()

    async def ask(self, call: Call, seconds: float) -> Answer:
        """See Transport."""
        if self._cuts:
            await asyncio.sleep(seconds)
            raise Unavailable("no answer in time")
        return await super().ask(call, seconds)

    async def lines(self, call: Call) -> AsyncGenerator[bytes, None]:
        """See Transport."""
        async with aclosing(super().lines(call)) as lines:
            async for line in lines:
                await self._joined.wait()
                yield line
