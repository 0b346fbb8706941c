"""Reports paths that may have changed. The receiver scans them again.

If events are not available (on a network file system, or at the limit of inotify), every path may have changed, at an
interval. A cookie is a private file whose event shows that all earlier events have arrived. After a loss of events,
watching starts again, and everything is scanned.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from pathlib import Path

from hai_sync.core.names import PRIVATE_DIR, is_private

if sys.platform == "linux":
    from hai_sync.watch.inotify import changed_paths
else:
    from hai_sync.watch.watchfiles_backend import changed_paths

POLL_SECONDS = 5.0
_RESTART_SECONDS = 0.2  # a start walks the tree, and more events may be lost meanwhile
_COOKIE = "cookie-"  # prefix of the names of cookies
_WATCH_LIMIT_REACHED = (
    "the limit of inotify watches is reached; "
    "raise it with `sysctl fs.inotify.max_user_watches=1048576`"
)
_NETWORK_TYPES = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "lustre", "ceph", "glusterfs"}
)


class Events:
    """The events of one root. `why_polling` says why there are none, and is empty otherwise."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._private_dir = os.path.join(self._root, PRIVATE_DIR)
        self._cookies: dict[str, asyncio.Event] = {}
        self._numbers = itertools.count(1)
        self.why_polling = network_type(root)

    async def hints(self) -> AsyncGenerator[set[str] | None, None]:
        """Yield sets of paths that may have changed; None means all paths. This ends when the root is removed."""
        if not self.why_polling:
            try:
                while self._root_exists():
                    async with aclosing(self._watched()) as watched:
                        async for paths in watched:
                            yield paths
                    await asyncio.sleep(_RESTART_SECONDS)
                return
            except (OSError, RuntimeError) as error:
                self.why_polling = _describe(error)
        while self._root_exists():
            yield None
            await asyncio.sleep(POLL_SECONDS)

    async def _watched(self) -> AsyncGenerator[set[str] | None, None]:
        """Yield hints until events are lost or the root is removed."""
        async with aclosing(changed_paths(self._root)) as batches:
            yield await anext(batches)  # changes that happened before the watch
            async for paths in batches:
                if paths is None or not self._root_exists():
                    return
                private = {path for path in paths if is_private(path)}
                if hints := paths - private:
                    yield hints
                # after the hints, so that `wait_until_caught_up` covers them
                self._note_cookies(private)

    def _root_exists(self) -> bool:
        return os.path.isdir(self._root)

    def _note_cookies(self, private: Iterable[str]) -> None:
        for path in private:
            if event := self._cookies.get(os.path.basename(path)):
                event.set()

    async def wait_until_caught_up(self, timeout: float = 0.5) -> bool:
        """Wait until every event up to now has arrived. Return False if no events arrive."""
        if self.why_polling:
            return False
        name = f"{_COOKIE}{os.getpid()}-{next(self._numbers)}"
        event = self._cookies[name] = asyncio.Event()
        path = Path(self._private_dir, name)
        try:
            await asyncio.to_thread(path.touch)
            async with asyncio.timeout(timeout):
                await event.wait()
            return True
        except (TimeoutError, OSError):
            return False
        finally:
            del self._cookies[name]
            with suppress(OSError):
                await asyncio.to_thread(path.unlink, missing_ok=True)


def network_type(root: Path) -> str:
    """Return the network file system of a path, which reports no events of other hosts; empty for a local one."""
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in mounts:
        fields = line.split()
        at = fields[1].replace("\\040", " ") if len(fields) > 2 else "?"
        inside = str(root) == at or str(root).startswith(at.rstrip("/") + "/")
        if inside and len(at) >= len(best):
            best, kind = at, fields[2]
    return f"{best} is a network file system ({kind})" if kind in _NETWORK_TYPES else ""


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return _WATCH_LIMIT_REACHED
    return f"no events are available: {error}"
