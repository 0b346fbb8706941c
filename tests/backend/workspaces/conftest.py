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
    """Make storage look slow, and batches small, so that a few files are enough for many threads."""
    monkeypatch.setattr(workers, "is_slow", lambda took, usual: True)
    for module in (apply, checkouts, removal, materialize, commit_preparation):
        monkeypatch.setattr(module, "FILES_PER_BATCH", 2)
    monkeypatch.setattr(prefetch, "_BYTES_PER_BATCH", 1000)
    for module in (tree_scan, overwrite_guard):
        monkeypatch.setattr(module, "NAMES_PER_BATCH", 4)


@pytest.fixture
def quick_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no work run in threads, however long a test takes."""
    monkeypatch.setattr(workers, "is_slow", lambda took, usual: False)
    monkeypatch.setattr(
        workers.StorageSpeed, "slow", False
    )  # even if an earlier test has measured slow storage
    monkeypatch.setattr(workers, "ThreadPoolExecutor", None)


@dataclass
class WorkspaceService:
    """The server, a client of an admin, and the root of the admin's workspaces."""

    server: RunningServer
    client: Client
    root: Path

    async def pusher(self, name: str = "w") -> Pusher:
        """Create a workspace, and return a client that pushes into it."""
        return await Pusher(self.client, name).create()

    def files(self, name: str = "w") -> Path:
        """Return the tree of a workspace."""
        return self.root / name / "files"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[WorkspaceService]:
    async with _serving(tmp_path / "home") as service:
        yield service


@pytest.fixture
async def service_in_memory(tmp_path: Path) -> AsyncIterator[WorkspaceService]:
    """A server whose files are in memory, for tests with many files."""
    memory = MEMORY if MEMORY.is_dir() else tmp_path  # noqa: ASYNC240 - a test may wait
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        async with _serving(Path(directory)) as service:
            yield service


@asynccontextmanager
async def _serving(home: Path) -> AsyncIterator[WorkspaceService]:
    async with running_server(home, nodes=1) as server, Client(server.profile) as client:
        yield WorkspaceService(server, client, home / "workspaces" / "admin")
