"""Builds trees from one line of text, and laptops that share a workspace of a real server."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hai.client.connection.transport import Connection
from hai.client.profile import Profile
from hai_sync.cli.session_factory import open_session
from hai_sync.core.chunks import compute_digest
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree
from hai_sync.core.reconcile_options import Mode, Policy, Rules
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.session import Session
from hai_sync.workspace_dir import create_workspace
from tests.support.servers import server_process


def tree_of(text: str) -> Tree:
    """Return a tree from a text such as `a=1 b*=2 d/ d/x=3@9 l>a p!`: file, executable, directory, newer file, link,
    problem.
    """
    return dict(_item(token) for token in text.split())


def _item(token: str) -> tuple[str, Entry]:
    if token.endswith("/"):
        return token[:-1], DIRECTORY
    if token.endswith("!"):
        return token[:-1], Entry(Kind.PROBLEM, target="refused")
    if ">" in token:
        path, _, target = token.partition(">")
        return path, Entry(Kind.SYMLINK, target=target)
    path, _, content = token.partition("=")
    content, _, time = content.partition("@")
    digest = compute_digest(content.encode())
    name = path.removesuffix("*")
    return name, Entry(Kind.FILE, digest, len(content), name != path, mtime_ns=int(time or 0))


@pytest.fixture
def tree() -> Callable[[str], Tree]:
    """Return `tree_of`."""
    return tree_of


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the state of workspaces in the directory of the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HAI_CONFIG", str(tmp_path / "config.toml"))
    for name in ("HAI_SERVER", "HAI_TOKEN", "HAI_PROFILE", "HAI_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def profile() -> Iterator[Profile]:
    """Run a real server in a separate process for all tests. Each test uses its own workspace."""
    with server_process() as server:
        yield server.profile()


@dataclass
class Laptop:
    """A directory with a session. Laptops with the same workspace name share a workspace."""

    root: Path
    session: Session
    cluster: Path  # the directory on the server

    def write(self, path: str, content: str | bytes = "x", mode: int = 0o644) -> None:
        """Write a file as an editor does."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(mode)

    def read(self) -> dict[str, bytes]:
        """Return all local files."""
        return contents(self.root)

    def on_cluster(self) -> dict[str, bytes]:
        """Return all files on the cluster."""
        return contents(self.cluster)

    async def sync(
        self, mode: Mode = Mode.SYNC, policy: Policy = Policy.REFUSE, **more: Any
    ) -> Report:
        """Sync as a new process would."""
        self.session.index.close()
        self.session = open_session(self.session.workspace, self.session.remote.connection)
        return await self.session.sync(SyncOptions(Rules(mode, policy), **more))

    async def push(self, **more: Any) -> Report:
        """Sync with mode PUSH."""
        return await self.sync(Mode.PUSH, **more)

    async def pull(self, **more: Any) -> Report:
        """Sync with mode PULL."""
        return await self.sync(Mode.PULL, **more)


def contents(root: Path) -> dict[str, bytes]:
    """Return the files below a root, except in the private directory, which changes during a sync."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != ".hfai"]
        for path in (Path(folder, name) for name in files):
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(root))] = path.read_bytes()
    return found


@contextmanager
def locked_elsewhere(state: Path) -> Iterator[None]:
    """Hold the lock of this directory as another process does: a lock belongs to the open file."""
    with (state / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def locked_by_other() -> Callable[[Path], AbstractContextManager[None]]:
    """Return `locked_elsewhere`."""
    return locked_elsewhere


@pytest.fixture
async def connection(profile: Profile) -> AsyncIterator[Connection]:
    """Return a connection to the server."""
    connection = Connection(profile)
    yield connection
    await connection.close()


@pytest.fixture
async def laptops(
    connection: Connection, tmp_path: Path
) -> AsyncIterator[Callable[[str], Awaitable[Laptop]]]:
    """Return a function that makes laptops of one workspace."""
    name = f"w-{uuid.uuid4().hex[:12]}"
    made: list[Laptop] = []

    async def make(host: str) -> Laptop:
        root = tmp_path / host
        root.mkdir()
        workspace_dir, _ = create_workspace(root, name)
        session = open_session(workspace_dir, connection)
        workspace = await session.remote.create()
        made.append(Laptop(root, session, Path(workspace.path)))
        return made[-1]

    yield make
    for each in made:
        each.session.index.close()


@pytest.fixture
async def laptop(laptops: Callable[[str], Awaitable[Laptop]]) -> Laptop:
    """Return one laptop."""
    return await laptops("laptop")
