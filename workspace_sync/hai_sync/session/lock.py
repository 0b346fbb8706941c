"""One process at a time syncs a workspace on this machine."""

from __future__ import annotations

import asyncio
import fcntl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO


@asynccontextmanager
async def locked(state: Path, waits: Callable[[], None]) -> AsyncIterator[None]:
    """The lock in the directory of what is remembered of a workspace. `waits` is called if another process has it."""
    with _opened(state) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            await _turn(file)
        yield


def _opened(state: Path) -> IO[str]:
    state.mkdir(parents=True, exist_ok=True)
    return (state / "lock").open("w")


async def _turn(file: IO[str]) -> None:
    """Nothing interrupts who waits for a lock, so that a thread does which the program need not end with."""
    loop, turn = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def told(error: OSError | None) -> None:
        if not turn.done():
            turn.set_exception(error) if error else turn.set_result(None)

    def wait() -> None:
        with suppress(ValueError, RuntimeError):  # the file or the loop is closed: nobody waits
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                loop.call_soon_threadsafe(told, error)
            else:
                loop.call_soon_threadsafe(told, None)

    threading.Thread(target=wait, daemon=True).start()
    await turn
