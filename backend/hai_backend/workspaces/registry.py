"""Opens, creates and deletes the workspaces of this server, and runs the threads that work on them.

The event loop never waits for storage: everything that blocks runs in threads of this registry, so slow pushes cannot
use up the threads of other services. Every change of a workspace requires its lock.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from hai_backend.domain.errors import Conflict, NotFound
from hai_backend.domain.workspace import Revision, Workspace
from hai_backend.workspaces import errors
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push import apply
from hai_backend.workspaces.push.removal import remove_tree

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Key = tuple[str, str]  # user and name
Owner = Callable[[str], int]  # returns the uid of a user; 0 if there is none

_THREADS = 4
_DRAIN_SECONDS = 2.0  # how long a deletion waits for readers
_MAX_IDLE_OPEN = 64  # unused workspaces that stay open


class OpenWorkspace:
    """An open workspace. Hold `change_lock` while you change it."""

    def __init__(self, key: Key, files: WorkspaceFiles) -> None:
        self.key = key
        self.files = files
        self.change_lock = asyncio.Lock()
        self.users = 0
        self.deleting = False  # if set, watchers must stop
        self.stored_bytes: int | None = None  # None if not computed since the last change
        self.announced_bytes = 0  # bytes that running pushes have announced
        self._next_change: asyncio.Future[None] | None = None

    def notify_change(self) -> None:
        """Wake all tasks that wait for a change."""
        self.stored_bytes = None
        if self._next_change is not None and not self._next_change.done():
            self._next_change.set_result(None)
        self._next_change = None

    async def wait_for_change(self) -> None:
        """Wait for the next change."""
        if self._next_change is None:
            self._next_change = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next_change)

    async def wait_unused(self) -> None:
        """Wait until nobody uses the workspace."""
        while self.users:
            await self.wait_for_change()

    def release(self) -> None:
        """End one use of the workspace, which a deletion may wait for."""
        self.users -= 1
        if self.deleting:
            self.notify_change()


class WorkspaceRegistry:
    """All workspaces below `root`, which is on storage that all servers share."""

    def __init__(self, root: Path, owner: Owner) -> None:
        self._root = root
        self._owner = owner
        self._threads = ThreadPoolExecutor(_THREADS, "workspaces")
        self._open: dict[Key, OpenWorkspace] = {}
        self._locks: dict[Key, asyncio.Lock] = {}

    async def run(
        self,
        path: Path,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        """Run a function in a thread. Raise HaiError for errors of storage."""

        def mapped() -> Result:
            with errors.map_storage_errors(path):
                return function(*args, **keywords)

        return await self.run_in_thread(mapped)

    async def run_in_thread(self, function: Callable[[], Result]) -> Result:
        """Run a function in a thread. A cancelled caller waits for the end, so that it holds its locks until then."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, function)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})
            raise

    async def list_names(self, user: str = "") -> list[Key]:
        """Return the workspaces of a user, or of all users if `user` is empty, by user and name."""
        return await self.run(self._root, self._names, user)

    def _names(self, user: str) -> list[Key]:
        users = [user] if user else _list_directory(self._root)
        return [
            (user_name, name)
            for user_name in users
            for name in _list_directory(self._root / user_name)
            if self._exists((user_name, name))
        ]

    async def list_with_old_incoming(self, before: float) -> list[Key]:
        """Return the workspaces with uncommitted contents that arrived before a time, without opening them."""
        return await self.run(self._root, self._with_old_incoming, before)

    def _with_old_incoming(self, before: float) -> list[Key]:
        return [key for key in self._names("") if _has_older(self.path(key) / "incoming", before)]

    def _exists(self, key: Key) -> bool:
        return (self.path(key) / "index.db").exists()

    def path(self, key: Key) -> Path:
        return self._root / key[0] / key[1]

    def _open_lock(self, key: Key) -> asyncio.Lock:
        """Return the lock that is held while a workspace is created, opened, closed or deleted."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def create(self, key: Key, now: float, request_id: str) -> None:
        """Create an empty workspace. Repeating the same request is not an error. Raise Conflict NAME_TAKEN."""
        async with self._open_lock(key):
            is_created = await self.run(self.path(key), self._create, key, now, request_id)
        if not is_created:
            raise Conflict(
                f"workspace {key[1]!r} already exists; choose another name, or bind to it",
                reason="NAME_TAKEN",
            )

    def _create(self, key: Key, now: float, request_id: str) -> bool:
        """Create a workspace under another name first, so that no incomplete one is ever visible."""
        path = self.path(key)
        if path.exists():
            return bool(request_id) and self._request_id(key) == request_id
        incomplete = self._root / key[0] / f".{key[1]}.new"
        shutil.rmtree(incomplete, ignore_errors=True)
        make_directories(incomplete, self._owner(key[0]))
        files = WorkspaceFiles(incomplete, 0)
        files.index.set_fact("created_at", now)
        files.index.set_fact("request_id", request_id)
        files.close()
        os.rename(incomplete, path)
        return True

    def _request_id(self, key: Key) -> str:
        workspace = self._open.get(key)
        if workspace is not None:
            return str(workspace.files.index.get_fact("request_id"))
        files = WorkspaceFiles(self.path(key), 0)
        try:
            return str(files.index.get_fact("request_id"))
        finally:
            files.close()

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[OpenWorkspace]:
        """Open a workspace for the duration of the block. Raise NotFound or Unavailable."""
        async with self._open_lock(key):
            workspace = self._open.get(key) or await self._open_now(key)
            workspace.users += 1
        try:
            yield workspace
        finally:
            workspace.release()

    async def _open_now(self, key: Key) -> OpenWorkspace:
        path = self.path(key)
        await self._close_idle()
        files = await self.run(path, self._open_files, key)
        workspace = self._open[key] = OpenWorkspace(key, files)
        return workspace

    def _open_files(self, key: Key) -> WorkspaceFiles:
        """Open the files of a workspace, and complete the commits of another process. Raise NotFound."""
        if not self._exists(key):
            raise NotFound(
                f"workspace {key[1]!r} of {key[0]} not found; `hai workspace list` shows yours"
            )
        files = WorkspaceFiles(self.path(key), self._owner(key[0]))
        try:
            apply.recover(files)
        except BaseException:
            files.close()
            raise
        return files

    async def _close_idle(self) -> None:
        idle = [
            w for w in self._open.values() if not w.users and not self._open_lock(w.key).locked()
        ]
        for workspace in idle[: max(0, len(self._open) - _MAX_IDLE_OPEN + 1)]:
            async with self._open_lock(workspace.key):
                await self._close_unused(workspace)

    async def _close_unused(self, workspace: OpenWorkspace) -> None:
        if not workspace.users and self._open.get(workspace.key) is workspace:
            del self._open[workspace.key]
            await self.run(workspace.files.path, workspace.files.close)

    async def delete(self, key: Key) -> None:
        """Delete a workspace and notify watchers. Raise NotFound, or Conflict when it is in use."""
        async with self._open_lock(key):
            workspace = self._open.get(key) or await self._open_now(key)
            await self._drain(workspace)
            await self._close_unused(workspace)
            hidden = await self.run(self.path(key), self._hide, key)
        await self.run(hidden, remove_tree, hidden)

    async def _drain(self, workspace: OpenWorkspace) -> None:
        """Stop watchers, and wait until nobody uses a workspace. Raise Conflict after a time."""
        workspace.deleting = True
        workspace.notify_change()
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await workspace.wait_unused()
        except TimeoutError:
            workspace.deleting = False
            message = (
                f"workspace {workspace.key[1]} is in use by a push or a reader; try again later"
            )
            raise Conflict(message, reason="IN_USE") from None

    def _hide(self, key: Key) -> Path:
        path = self.path(key)
        hidden = path.with_name(f".{key[1]}.{secrets.token_hex(8)}")
        os.rename(path, hidden)
        return hidden

    async def stored_bytes(self, workspace: OpenWorkspace) -> int:
        """Return the bytes that a workspace occupies on storage."""
        if workspace.stored_bytes is None:
            workspace.stored_bytes = await self.run(
                workspace.files.path, workspace.files.stored_bytes
            )
        return workspace.stored_bytes

    async def describe(self, workspace: OpenWorkspace) -> Workspace:
        """Describe a workspace, except for its quota and lease."""
        user, name = workspace.key
        newest, created = await self.run(workspace.files.path, _newest_and_created, workspace.files)
        return Workspace(
            user,
            name,
            str(workspace.files.tree),
            created,
            newest,
            await self.stored_bytes(workspace),
        )

    async def close(self) -> None:
        """Close all workspaces, so that another server can open them."""
        for workspace in self._open.values():
            await self.run(workspace.files.path, workspace.files.close)
        self._open.clear()
        self._threads.shutdown(wait=False)


def _newest_and_created(files: WorkspaceFiles) -> tuple[Revision, float]:
    return files.index.newest_revision(), float(files.index.get_fact("created_at") or 0)


def _has_older(path: Path, before: float) -> bool:
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return any(entry.stat(follow_symlinks=False).st_mtime < before for entry in entries)
    return False


def _list_directory(path: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
