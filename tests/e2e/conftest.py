"""Fixtures: real servers, agents and programs. Each test has its own home directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.servers import ServerProcess
from tests.support.service_cluster import ServiceCluster, browser, process_service_cluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Return a server with two nodes. The test starts it."""
    made = ServerProcess(tmp_path, "--nodes", "2")
    yield made
    if made.running:
        made.end()
    made.sweep()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ServiceCluster]:
    """Run a server in this process, whose agents and programs are processes."""
    async with process_service_cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    """Return a session that behaves like a browser."""
    async with browser() as session:
        yield session
