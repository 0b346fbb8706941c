"""Real servers, agents and programs; every test has a home of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.reaching import Reach, browser, reach
from tests.support.servers import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Two nodes; not started yet."""
    made = ServerProcess(tmp_path, "--nodes", "2")
    yield made
    if made.running:
        made.end()
    made.sweep()


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Reach]:
    """A server in this process, with agents and programs of its own."""
    async with reach(tmp_path) as made:
        yield made


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    """A browser of sorts."""
    async with browser() as session:
        yield session
