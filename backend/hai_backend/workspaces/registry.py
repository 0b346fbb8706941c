"""All workspaces of this server: which exist, which are open, and the threads that work on them.

The event loop never waits for storage: everything that blocks runs in this pool of threads, so many slow pushes cannot
take the threads of other services. Whoever changes a workspace holds its lock.
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
Owner = Callable[[str], int]  # returns the uid of a user; 0: none

_THREADS = 4
_DRAIN_SECONDS = 2.0  # how long a deletion waits for readers
_MAX_IDLE_OPEN = 64  # unused workspaces that stay open


class OpenWorkspace:
    """An open workspace. Hold `changing` while changing it."""

    def __init__(self, key: Key, files: WorkspaceFiles) -> None:
        self.key = key
        self.files = files
        self.changing = asyncio.Lock()
        self.users = 0
        self.deleting = False  # it is being deleted: watchers must stop
        self.stored_bytes: int | None = None  # None: not computed since the last change
        self.announced_bytes = 0  # bytes that running pushes have announced
        self._next: asyncio.Future[None] | None = None

    def publish(self) -> None:
        """Wakes everybody who waits for a change."""
        self.stored_bytes = None
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self) -> None:
        """Waits for the next change."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    async def wait_unused(self) -> None:
        """Waits until nobody uses the workspace."""
        while self.users:
            await self.wait()

    def release(self) -> None:
        """Ends one use."""
        self.users -= 1
        if self.deleting:
            self.publish()


class WorkspaceRegistry:
    """`root` is on storage that all servers share."""

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
        """Runs a function in a thread. Raises HaiError for errors of storage."""

        def mapped() -> Result:
            with errors.map_storage_errors(path):
                return function(*args, **keywords)

        return await self.run_in_thread(mapped)

    async def run_in_thread(self, function: Callable[[], Result]) -> Result:
        """Runs a function in a thread. When cancelled, it still waits for the end, so locks stay held until then."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, function)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})
            raise

    async def names(self, user: str = "") -> list[Key]:
        """Returns the workspaces of a user, or of all users, by user and name."""
        return await self.run(self._root, self._names, user)

    def _names(self, user: str) -> list[Key]:
        users = [user] if user else _list_directory(self._root)
        return [
            (user_name, name)
            for user_name in users
            for name in _list_directory(self._root / user_name)
            if self._exists((user_name, name))
        ]

    async def with_old_incoming(self, before: float) -> list[Key]:
        """Returns the workspaces with uncommitted contents that arrived before a time, without opening them."""
        return await self.run(self._root, self._with_old_incoming, before)

    def _with_old_incoming(self, before: float) -> list[Key]:
        return [key for key in self._names("") if _has_older(self.path(key) / "incoming", before)]

    def _exists(self, key: Key) -> bool:
        return (self.path(key) / "index.db").exists()

    def path(self, key: Key) -> Path:
        return self._root / key[0] / key[1]

    def _open_lock(self, key: Key) -> asyncio.Lock:
        """Returns the lock that is held while a workspace is created, opened, closed or deleted."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def create(self, key: Key, now: float, request_id: str) -> None:
        """Creates an empty workspace. Repeating the same request is not an error. Raises Conflict NAME_TAKEN."""
        async with self._open_lock(key):
            made = await self.run(self.path(key), self._create, key, now, request_id)
        if not made:
            raise Conflict(
                f"workspace {key[1]!r} already exists; choose another name, or bind to it",
                reason="NAME_TAKEN",
            )

    def _create(self, key: Key, now: float, request_id: str) -> bool:
        """Creates it under another name first, so that no incomplete workspace is ever visible."""
        path = self.path(key)
        if path.exists():
            return bool(request_id) and self._request_id(key) == request_id
        made = self._root / key[0] / f".{key[1]}.new"
        shutil.rmtree(made, ignore_errors=True)
        make_directories(made, self._owner(key[0]))
        files = WorkspaceFiles(made, 0)
        files.index.set_fact("created_at", now)
        files.index.set_fact("request_id", request_id)
        files.close()
        os.rename(made, path)
        return True

    def _request_id(self, key: Key) -> str:
        workspace = self._open.get(key)
        if workspace is not None:
            return str(workspace.files.index.fact("request_id"))
        files = WorkspaceFiles(self.path(key), 0)
        try:
            return str(files.index.fact("request_id"))
        finally:
            files.close()

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[OpenWorkspace]:
        """Opens a workspace for the duration of the block. Raises NotFound or Unavailable."""
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
            r for r in self._open.values() if not r.users and not self._open_lock(r.key).locked()
        ]
        for workspace in idle[: max(0, len(self._open) - _MAX_IDLE_OPEN + 1)]:
            async with self._open_lock(workspace.key):
                await self._close_unused(workspace)

    async def _close_unused(self, workspace: OpenWorkspace) -> None:
        if not workspace.users and self._open.get(workspace.key) is workspace:
            del self._open[workspace.key]
            await self.run(workspace.files.path, workspace.files.close)

    async def delete(self, key: Key) -> None:
        """Deletes a workspace and notifies watchers. Raises NotFound, or Conflict when it is in use."""
        async with self._open_lock(key):
            workspace = self._open.get(key) or await self._open_now(key)
            await self._drain(workspace)
            await self._close_unused(workspace)
            deleting = await self.run(self.path(key), self._hide, key)
        await self.run(deleting, remove_tree, deleting)

    async def _drain(self, workspace: OpenWorkspace) -> None:
        workspace.deleting = True
        workspace.publish()
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
        deleting = path.with_name(f".{key[1]}.{secrets.token_hex(8)}")
        os.rename(path, deleting)
        return deleting

    async def stored_bytes(self, workspace: OpenWorkspace) -> int:
        """Returns the bytes that a workspace occupies on storage."""
        if workspace.stored_bytes is None:
            workspace.stored_bytes = await self.run(
                workspace.files.path, workspace.files.stored_bytes
            )
        return workspace.stored_bytes

    async def describe(self, workspace: OpenWorkspace) -> Workspace:
        """Describes a workspace, except for its quota and lease."""
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
        """Closes all workspaces, so that another server can open them."""
        for workspace in self._open.values():
            await self.run(workspace.files.path, workspace.files.close)
        self._open.clear()
        self._threads.shutdown(wait=False)


def _newest_and_created(files: WorkspaceFiles) -> tuple[Revision, float]:
    return files.index.newest(), float(files.index.fact("created_at") or 0)


def _has_older(path: Path, before: float) -> bool:
    with suppress(FileNotFoundError), os.scandir(path) as found:
        return any(item.stat(follow_symlinks=False).st_mtime < before for item in found)
    return False


def _list_directory(path: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
