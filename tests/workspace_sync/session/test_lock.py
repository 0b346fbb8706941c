"""Processes take turns at a workspace."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hai_sync.session.lock import locked


@contextmanager
def held(state: Path) -> Iterator[None]:
    """By another process: locks belong to who has opened the file."""
    with (state / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def test_who_finds_it_free_does_not_wait(tmp_path: Path) -> None:
    said: list[str] = []
    async with locked(tmp_path / "new", lambda: said.append("wait")):
        assert (tmp_path / "new" / "lock").exists()
    assert not said


async def test_the_loop_goes_on_while_one_waits_for_its_turn(tmp_path: Path) -> None:
    waits, has = asyncio.Event(), asyncio.Event()

    async def sync() -> None:
        async with locked(tmp_path, waits.set):
            has.set()

    with held(tmp_path):
        syncing = asyncio.create_task(sync())
        await waits.wait()
        await asyncio.sleep(0)
        assert not has.is_set()
    await syncing
    assert has.is_set()


async def test_who_gives_up_waiting_takes_nothing_from_others(tmp_path: Path) -> None:
    waits = asyncio.Event()

    async def sync() -> None:
        async with locked(tmp_path, waits.set):
            raise AssertionError("nobody gave it")

    with held(tmp_path):
        syncing = asyncio.create_task(sync())
        await waits.wait()
        syncing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await syncing
    async with asyncio.timeout(10), locked(tmp_path, lambda: None):
        pass
