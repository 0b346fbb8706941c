"""The lock that allows one process at a time to sync a workspace on this machine."""

from __future__ import annotations

import asyncio
import fcntl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO


@asynccontextmanager
async def lock_workspace(state: Path, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock in the state directory of a workspace. `on_wait` is called if another process holds it."""
    with _open(state) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            await _acquire(file)
        yield


def _open(state: Path) -> IO[str]:
    state.mkdir(parents=True, exist_ok=True)
    return (state / "lock").open("w")


async def _acquire(file: IO[str]) -> None:
    """Wait for the lock in a daemon thread.

    Waiting for flock cannot be interrupted, and must not delay the end of the program.
    """
    loop, acquired = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def finish(error: OSError | None) -> None:
        if not acquired.done():
            acquired.set_exception(error) if error else acquired.set_result(None)

    def wait() -> None:
        with suppress(ValueError, RuntimeError):  # the file or the loop was closed meanwhile
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                loop.call_soon_threadsafe(finish, error)
            else:
                loop.call_soon_threadsafe(finish, None)

    threading.Thread(target=wait, daemon=True).start()
    await acquired
