"""Merges several streams into one, in the order in which their answers arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

Answer = TypeVar("Answer")


async def merged(*streams: AsyncGenerator[Answer, None]) -> AsyncGenerator[Answer, None]:
    """Yield the answers of all streams. Each stream is read one answer ahead; all end with the first that ends."""
    waiting = {asyncio.ensure_future(anext(stream, None)): stream for stream in streams}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (answer := task.result()) is None:
                    return
                stream = waiting.pop(task)
                yield answer
                waiting[asyncio.ensure_future(anext(stream, None))] = stream
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()
