"""Waiting that ends when a pod is to end."""

from __future__ import annotations

import asyncio

from hai_backend.testing.kube.timers import Timers


class StoppedError(Exception):
    """The pod is to end; nothing new is started."""


class Patience:
    """Waits of one pod, by the cluster's timers."""

    def __init__(self, timers: Timers, stop: asyncio.Event) -> None:
        self._timers, self._stop = timers, stop

    async def sleep(self, seconds: float) -> None:
        """Raises StoppedError."""
        over = asyncio.Event()
        timer = self._timers.call_later(seconds, over.set)
        try:
            await self.until(over)
        finally:
            timer.cancel()

    async def until(self, event: asyncio.Event) -> None:
        """Raises StoppedError when the pod is to end first."""
        waits = [asyncio.ensure_future(e.wait()) for e in (event, self._stop)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._stop.is_set():
            raise StoppedError
