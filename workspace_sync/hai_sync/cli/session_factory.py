"""From a directory to a session with its server."""

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
from hai.host.memory import keep_memory
from hai_sync.index import Index
from hai_sync.remote.endpoint import Remote
from hai_sync.session.options import Listener, Silent
from hai_sync.session.ownership import claim
from hai_sync.session.session import Session
from hai_sync.workspace_dir import WorkspaceDir, find

Answer = TypeVar("Answer")
_GARBAGE = 50_000
_ARENAS = 2  # one thread at a time allocates, mostly


@asynccontextmanager
async def opened(profile: str | None, listener: Listener | None = None) -> AsyncIterator[Session]:
    """The session of the workspace that we stand in."""
    place = find()
    async with connected(profile) as connection:
        session = open_session(place, connection, listener)
        try:
            yield session
        finally:
            session.index.close()


def claim_memory(place: WorkspaceDir) -> None:
    """Before a daemon is started. Raises UsageError in a copy."""
    with closing(Index(place.state / "index.sqlite")) as index:
        claim(place, index)


def open_session(
    place: WorkspaceDir, connection: Connection, listener: Listener | None = None
) -> Session:
    """Of a place."""
    index = Index(place.state / "index.sqlite")
    return Session(place, index, Remote(connection, place.name), listener or Silent())


@asynccontextmanager
async def connected(profile: str | None) -> AsyncIterator[Connection]:
    """A connection to the server of a profile."""
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
    """Open, work, close."""
    # Of what there is many, entries and messages, nothing is ever in a circle
    gc.set_threshold(_GARBAGE)
    keep_memory(_ARENAS)

    async def whole() -> Answer:
        async with opened(profile, listener) as session:
            return await work(session)

    return asyncio.run(whole())


def with_connection(profile: str | None, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Connect, work, disconnect."""

    async def whole() -> Answer:
        async with connected(profile) as connection:
            return await work(connection)

    return asyncio.run(whole())


def relative(place: WorkspaceDir, path: str) -> str:
    """A path of the command line, as it is called in the workspace. Raises UsageError for one outside of it."""
    root = os.path.realpath(place.root)
    found = os.path.relpath(os.path.join(os.path.realpath(os.curdir), path), root)
    if found == os.pardir or found.startswith(os.pardir + os.sep):
        raise UsageError(f"{path!r} is not in the workspace {root}")
    return "" if found == os.curdir else found


def pattern(place: WorkspaceDir, path: str) -> str:
    """The same where globs work; of the directory that we stand in only the name counts. Raises UsageError."""
    found = relative(place, path)
    if not os.path.isabs(path):
        found = os.path.normpath(os.path.join(glob.escape(relative(place, os.curdir)), path))
    return "*" if found in ("", os.curdir) else found
