"""All workspaces of this server: which there are, which are open, and the threads that work on them.

The event loop never waits for storage: everything that blocks runs in threads of our own, so that many slow pushes
cannot take those of others. Whoever changes a workspace holds its lock.
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
from hai_backend.workspaces.files import Files, make
from hai_backend.workspaces.push import apply
from hai_backend.workspaces.push.removal import remove_tree

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Key = tuple[str, str]  # user and name
Owner = Callable[[str], int]  # uid of a user; 0: none

_THREADS = 4
_LEAVE_SECONDS = 2.0  # for those who read it when it is deleted
_OPEN = 64  # workspaces that stay open though nobody uses them


class OpenWorkspace:
    """One open workspace. `changing` is held by whoever changes it."""

    def __init__(self, key: Key, files: Files) -> None:
        self.key = key
        self.files = files
        self.changing = asyncio.Lock()
        self.users = 0
        self.gone = False  # it is being deleted: whoever waits for it must leave
        self.stored: int | None = None  # bytes; None: something has changed since it was asked
        self.coming = 0  # bytes that pushes under way have announced
        self._next: asyncio.Future[None] | None = None

    def publish(self) -> None:
        """Something has changed: wake who waits."""
        self.stored = None
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self) -> None:
        """Return at the next change."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    async def unused(self) -> None:
        """Return when nobody uses it."""
        while self.users:
            await self.wait()

    def leave(self) -> None:
        """One user less."""
        self.users -= 1
        if self.gone:
            self.publish()


class WorkspaceRegistry:
    """`root` is below what servers have in common."""

    def __init__(self, root: Path, owner: Owner) -> None:
        self._root = root
        self._owner = owner
        self._threads = ThreadPoolExecutor(_THREADS, "workspaces")
        self._open: dict[Key, OpenWorkspace] = {}
        self._locks: dict[Key, asyncio.Lock] = {}

    async def work(
        self, path: Path, do: Callable[Given, Answer], *args: Given.args, **more: Given.kwargs
    ) -> Answer:
        """Do it in a thread. Raises HaiError for what storage refuses."""

        def told() -> Answer:
            with errors.told(path):
                return do(*args, **more)

        return await self.in_thread(told)

    async def in_thread(self, do: Callable[[], Answer]) -> Answer:
        """Do it. Who is cancelled waits for its end all the same: what is held meanwhile stays held."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, do)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait({running})
            raise

    async def names(self, user: str = "") -> list[Key]:
        """Workspaces of a user, or of all, by user and name."""
        return await self.work(self._root, self._names, user)

    def _names(self, user: str) -> list[Key]:
        users = [user] if user else _listed(self._root)
        return [
            (u, name) for u in users for name in _listed(self._root / u) if self._is_one((u, name))
        ]

    async def left_over(self, before: float) -> list[Key]:
        """Workspaces with contents that arrived before a moment and did not become a revision. None is opened."""
        return await self.work(self._root, self._left_over, before)

    def _left_over(self, before: float) -> list[Key]:
        return [key for key in self._names("") if _has_older(self.path(key) / "incoming", before)]

    def _is_one(self, key: Key) -> bool:
        return (self.path(key) / "index.db").exists()

    def path(self, key: Key) -> Path:
        """Where it lies."""
        return self._root / key[0] / key[1]

    def _opening(self, key: Key) -> asyncio.Lock:
        """Held while one is made, opened, closed or deleted."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def create(self, key: Key, now: float, request_id: str) -> None:
        """An empty one. The same request again is no error. Raises Conflict NAME_TAKEN."""
        async with self._opening(key):
            made = await self.work(self.path(key), self._create, key, now, request_id)
        if not made:
            raise Conflict(
                f"you have a workspace {key[1]!r} already; choose another name, or bind to it",
                reason="NAME_TAKEN",
            )

    def _create(self, key: Key, now: float, request_id: str) -> bool:
        """It is made under another name first, so that none is ever half there."""
        path = self.path(key)
        if path.exists():
            return bool(request_id) and self._request(key) == request_id
        made = self._root / key[0] / f".{key[1]}.new"
        shutil.rmtree(made, ignore_errors=True)
        make(made, self._owner(key[0]))
        files = Files(made, 0)
        files.index.keep_fact("created_at", now)
        files.index.keep_fact("request_id", request_id)
        files.close()
        os.rename(made, path)
        return True

    def _request(self, key: Key) -> str:
        room = self._open.get(key)
        if room is not None:
            return str(room.files.index.fact("request_id"))
        files = Files(self.path(key), 0)
        try:
            return str(files.index.fact("request_id"))
        finally:
            files.close()

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[OpenWorkspace]:
        """One of them, for as long as it is used. Raises NotFound or Unavailable."""
        async with self._opening(key):
            room = self._open.get(key) or await self._opened(key)
            room.users += 1
        try:
            yield room
        finally:
            room.leave()

    async def _opened(self, key: Key) -> OpenWorkspace:
        path = self.path(key)
        await self._close_idle()
        files = await self.work(path, self._open_files, key)
        room = self._open[key] = OpenWorkspace(key, files)
        return room

    def _open_files(self, key: Key) -> Files:
        if not self._is_one(key):
            raise NotFound(
                f"there is no workspace {key[1]!r} of {key[0]}; `hai workspace list` shows yours"
            )
        files = Files(self.path(key), self._owner(key[0]))
        try:
            apply.recover(files)
        except BaseException:
            files.close()
            raise
        return files

    async def _close_idle(self) -> None:
        idle = [r for r in self._open.values() if not r.users and not self._opening(r.key).locked()]
        for room in idle[: max(0, len(self._open) - _OPEN + 1)]:
            async with self._opening(room.key):
                await self._shut(room)

    async def _shut(self, room: OpenWorkspace) -> None:
        if not room.users and self._open.get(room.key) is room:
            del self._open[room.key]
            await self.work(room.files.path, room.files.close)

    async def delete(self, key: Key) -> None:
        """Take it away with all that is in it; watchers are told. Raises NotFound, or Conflict when it is in use."""
        async with self._opening(key):
            room = self._open.get(key) or await self._opened(key)
            await self._emptied(room)
            await self._shut(room)
            gone = await self.work(self.path(key), self._hide, key)
        await self.work(gone, remove_tree, gone)

    async def _emptied(self, room: OpenWorkspace) -> None:
        room.gone = True
        room.publish()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await room.unused()
        except TimeoutError:
            room.gone = False
            message = f"somebody pushes or reads workspace {room.key[1]} just now; try again later"
            raise Conflict(message, reason="IN_USE") from None

    def _hide(self, key: Key) -> Path:
        path = self.path(key)
        gone = path.with_name(f".{key[1]}.{secrets.token_hex(8)}")
        os.rename(path, gone)
        return gone

    async def stored(self, room: OpenWorkspace) -> int:
        """Bytes on storage."""
        if room.stored is None:
            room.stored = await self.work(room.files.path, room.files.stored_bytes)
        return room.stored

    async def described(self, room: OpenWorkspace) -> Workspace:
        """As people see it, but for quota and lease."""
        user, name = room.key
        newest, created = await self.work(room.files.path, _facts, room.files)
        return Workspace(user, name, str(room.files.tree), created, newest, await self.stored(room))

    async def close(self) -> None:
        """Let others have them."""
        for room in self._open.values():
            await self.work(room.files.path, room.files.close)
        self._open.clear()
        self._threads.shutdown(wait=False)


def _facts(files: Files) -> tuple[Revision, float]:
    return files.index.newest(), float(files.index.fact("created_at") or 0)


def _has_older(path: Path, before: float) -> bool:
    with suppress(FileNotFoundError), os.scandir(path) as found:
        return any(item.stat(follow_symlinks=False).st_mtime < before for item in found)
    return False


def _listed(path: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
