"""Repeats work while the store is unavailable, for example because its disk is full. No caller would repeat it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from hai_backend.domain.errors import Unavailable

log = structlog.get_logger(__name__)
Result = TypeVar("Result")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


async def retry_until_stored(
    work: Callable[[], Awaitable[Result]], description: str, **of: object
) -> Result:
    """Call `work` until it does not raise Unavailable, and return its result. Other errors are raised.

    `description` and `of` describe the work in the log.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            return await work()
        except Unavailable as error:
            if pause == _FIRST_PAUSE:
                log.warning(f"{description} waits for the store", **of, why=str(error))
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
