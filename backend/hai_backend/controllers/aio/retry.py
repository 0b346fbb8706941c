"""What nobody would ask for again is tried until the store takes it: a database is started again, a disk is full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from hai_backend.domain.errors import Unavailable

log = structlog.get_logger(__name__)
Answer = TypeVar("Answer")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


async def insisted(work: Callable[[], Awaitable[Answer]], what: str, **of: object) -> Answer:
    """Its answer, however long that takes; all other errors leave at once. `what` waits, for the log."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return await work()
        except Unavailable as error:
            if pause == _FIRST_PAUSE:
                log.warning(f"{what} waits for the store", **of, why=str(error))
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
