"""Opens a session for the workspace of the current directory."""

from __future__ import annotations

import asyncio
import gc
import glob
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import TypeVar

from hai.client.connection.transport import Connection
from hai.client.errors import UsageError
from hai.client.profile import load
from hai.host.memory import retain_freed_memory
from hai_sync.index import Index
from hai_sync.remote.endpoint import Remote
from hai_sync.session.options import Listener, NullListener
from hai_sync.session.ownership import claim_index
from hai_sync.session.session import Session
from hai_sync.workspace_dir import WorkspaceDir, find_workspace

Answer = TypeVar("Answer")
_GC_THRESHOLD = 50_000
_MALLOC_ARENAS = 2  # mostly one thread at a time allocates memory


@asynccontextmanager
async def open_current_session(
    profile: str | None, listener: Listener | None = None
) -> AsyncIterator[Session]:
    """Open a session of the workspace of the current directory."""
    workspace = find_workspace()
    async with connect(profile) as connection:
        session = open_session(workspace, connection, listener)
        try:
            yield session
        finally:
            session.index.close()


def claim_workspace_index(workspace: WorkspaceDir) -> None:
    """Claim the index before a daemon is started. Raises UsageError in a copy of a workspace."""
    with closing(Index(workspace.index_path)) as index:
        claim_index(workspace, index)


def open_session(
    workspace: WorkspaceDir, connection: Connection, listener: Listener | None = None
) -> Session:
    index = Index(workspace.index_path)
    return Session(workspace, index, Remote(connection, workspace.name), listener or NullListener())


@asynccontextmanager
async def connect(profile: str | None) -> AsyncIterator[Connection]:
    connection = Connection(load(profile))
    try:
        yield connection
    finally:
        await connection.close()


def with_session(
    profile: str | None,
    work: Callable[[Session], Awaitable[Answer]],
    listener: Listener | None = None,
) -> Answer:
    """Run work with a session of the current directory, and return its result."""
    # most objects are entries and messages, which are never in reference cycles
    gc.set_threshold(_GC_THRESHOLD)
    retain_freed_memory(_MALLOC_ARENAS)

    async def run_work() -> Answer:
        async with open_current_session(profile, listener) as session:
            return await work(session)

    return asyncio.run(run_work())


def with_connection(profile: str | None, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Run work with a connection, and return its result."""

    async def run_work() -> Answer:
        async with connect(profile) as connection:
            return await work(connection)

    return asyncio.run(run_work())


def relative_path(workspace: WorkspaceDir, path: str) -> str:
    """Return a path of the command line relative to the root. Raises UsageError for one outside of the workspace."""
    root = os.path.realpath(workspace.root)
    found = os.path.relpath(os.path.join(os.path.realpath(os.curdir), path), root)
    if found == os.pardir or found.startswith(os.pardir + os.sep):
        raise UsageError(f"{path!r} is not in the workspace {root}")
    return "" if found == os.curdir else found


def relative_pattern(workspace: WorkspaceDir, path: str) -> str:
    """Return a glob pattern relative to the root. The current directory is escaped in it. Raises UsageError."""
    found = relative_path(workspace, path)
    if not os.path.isabs(path):
        found = os.path.normpath(
            os.path.join(glob.escape(relative_path(workspace, os.curdir)), path)
        )
    return "*" if found in ("", os.curdir) else found
