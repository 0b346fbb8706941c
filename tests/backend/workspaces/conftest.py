"""A server with workspaces in this process, and a client that pushes."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hai.client.client import Client
from hai_backend.workspaces import checkouts
from hai_backend.workspaces.push import (
    apply,
    commit_preparation,
    materialize,
    overwrite_guard,
    removal,
)
from hai_backend.workspaces.storage import prefetch, tree_scan, workers
from tests.support.servers import RunningServer, running_server
from tests.support.workspaces import Pusher

MEMORY = Path("/dev/shm")


@pytest.fixture
def slow_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes long, it seems: a few files are enough for many threads."""
    monkeypatch.setattr(workers, "is_slow", lambda took, usual: True)
    for module in (apply, checkouts, removal, materialize, commit_preparation):
        monkeypatch.setattr(module, "FILES_PER_BATCH", 2)
    monkeypatch.setattr(prefetch, "_BYTES_PER_BATCH", 1000)
    for module in (tree_scan, overwrite_guard):
        monkeypatch.setattr(module, "NAMES_PER_BATCH", 4)


@pytest.fixture
def quick_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done by threads, however long a test takes."""
    monkeypatch.setattr(workers, "is_slow", lambda took, usual: False)
    monkeypatch.setattr(workers.StorageSpeed, "slow", False)  # whatever was found before
    monkeypatch.setattr(workers, "ThreadPoolExecutor", None)


@dataclass
class Here:
    """The server, an admin's client, and where workspaces of the admin lie."""

    server: RunningServer
    client: Client
    root: Path

    async def pusher(self, name: str = "w") -> Pusher:
        """Of a new workspace."""
        return await Pusher(self.client, name).create()

    def files(self, name: str = "w") -> Path:
        """The tree of a workspace."""
        return self.root / name / "files"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with _serving(tmp_path / "home") as here:
        yield here


@pytest.fixture
async def here_in_memory(tmp_path: Path) -> AsyncIterator[Here]:
    """Where disks would be slow: as many files as a test likes."""
    memory = MEMORY if MEMORY.is_dir() else tmp_path  # noqa: ASYNC240 - a test may wait
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        async with _serving(Path(directory)) as here:
            yield here


@asynccontextmanager
async def _serving(home: Path) -> AsyncIterator[Here]:
    async with running_server(home, nodes=1) as server, Client(server.profile) as client:
        yield Here(server, client, home / "workspaces" / "admin")
