"""Tests of the lock of a workspace."""

from __future__ import annotations

import asyncio
import errno
import fcntl
from pathlib import Path
from typing import IO

import pytest

from hai_sync.session.lock import lock_workspace


async def test_a_free_lock_is_acquired_at_once(tmp_path: Path) -> None:
    messages: list[str] = []
    async with lock_workspace(tmp_path / "new", lambda: messages.append("wait")):
        assert (tmp_path / "new" / "lock").exists()
    assert not messages


async def test_the_event_loop_runs_while_the_lock_is_awaited(
    tmp_path: Path, locked_by_other
) -> None:
    waits, has = asyncio.Event(), asyncio.Event()

    async def sync() -> None:
        async with lock_workspace(tmp_path, waits.set):
            has.set()

    with locked_by_other(tmp_path):
        syncing = asyncio.create_task(sync())
        await waits.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(has.wait(), 0.1)
    await syncing
    assert has.is_set()


async def test_a_cancelled_wait_does_not_take_the_lock(tmp_path: Path, locked_by_other) -> None:
    waits = asyncio.Event()

    async def sync() -> None:
        async with lock_workspace(tmp_path, waits.set):
            raise AssertionError("nobody gave it")

    with locked_by_other(tmp_path):
        syncing = asyncio.create_task(sync())
        await waits.wait()
        syncing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await syncing
    async with asyncio.timeout(10), lock_workspace(tmp_path, lambda: None):
        pass


async def test_an_unsupported_lock_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(file: IO[str], how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks left") if how == fcntl.LOCK_EX else BlockingIOError

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match="no locks left"):
        async with asyncio.timeout(10), lock_workspace(tmp_path, lambda: None):
            pass
