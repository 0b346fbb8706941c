"""Homes whose agents are killed after each test, and launchers that use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hai_backend.launch.base import LauncherEvent
from hai_backend.launch.local_launcher import ProcessLauncher, sweep


class Watched:
    """A launcher and its events."""

    def __init__(self, home: Path, gpus: int = 0) -> None:
        layout = SimpleNamespace(nodes=2, gpus_per_node=gpus, groups={})
        self.launcher = ProcessLauncher(home, layout)
        self._events = self.launcher.events()

    async def next(self) -> LauncherEvent:
        return await asyncio.wait_for(anext(self._events), 10)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path.resolve()
    sweep(tmp_path)


@pytest.fixture
async def watch(home: Path) -> AsyncIterator[Callable[[], Awaitable[Watched]]]:
    """Makes a launcher on the home, past its first two events; called again: as after a restart of the server."""
    made: list[Watched] = []

    async def make() -> Watched:
        made.append(Watched(home))
        return made[-1]

    yield make
    for watched in made:
        await watched.launcher.close()
