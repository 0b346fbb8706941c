"""Paths that may have changed. Events are hints: whoever gets them looks at the files again.

Where events cannot be had (a network file system, the limit of inotify) the hint is "anything", at an
interval. A cookie is a file of our own whose event tells that all earlier events have arrived. Where some were lost,
watching begins again, and everything is looked at.
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

from hai_sync.core.names import OWN, is_own

if sys.platform == "linux":
    from hai_sync.watch.inotify import told
else:
    from hai_sync.watch.watchfiles_backend import told

POLL_SECONDS = 5.0
_AGAIN_SECONDS = 0.2  # to begin costs a walk, and where events were lost more may be
_COOKIE = "cookie-"
_LIMIT = (
    "the limit of inotify watches is reached; "
    "raise it with `sysctl fs.inotify.max_user_watches=1048576`"
)
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "lustre", "ceph", "glusterfs"}
)


class Events:
    """The events of one root. `why_polling` tells people why there are none."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._own = os.path.join(self._root, OWN)
        self._cookies: dict[str, asyncio.Event] = {}
        self._numbers = itertools.count(1)
        self.why_polling = network_type(root)

    async def hints(self) -> AsyncGenerator[set[str] | None, None]:
        """Sets of paths; None: anything may have changed. Ends when the root is gone."""
        if not self.why_polling:
            try:
                while self._there():
                    async with aclosing(self._watched()) as watched:
                        async for paths in watched:
                            yield paths
                    await asyncio.sleep(_AGAIN_SECONDS)
                return
            except (OSError, RuntimeError) as error:
                self.why_polling = _words(error)
        while self._there():
            yield None
            await asyncio.sleep(POLL_SECONDS)

    async def _watched(self) -> AsyncGenerator[set[str] | None, None]:
        """Until some events were lost, or the root is gone."""
        async with aclosing(told(self._root)) as telling:
            yield await anext(telling)  # what happened before we began to watch
            async for paths in telling:
                if paths is None or not self._there():
                    return
                own = {path for path in paths if is_own(path)}
                if hints := paths - own:
                    yield hints
                self._seen(own)  # whoever waits for a cookie may rely on the hints being taken

    def _there(self) -> bool:
        return os.path.isdir(self._root)

    def _seen(self, own: Iterable[str]) -> None:
        for path in own:
            if event := self._cookies.get(os.path.basename(path)):
                event.set()

    async def caught_up(self, timeout: float = 0.5) -> bool:
        """Wait until every event up to now has arrived; False: they do not come."""
        if self.why_polling:
            return False
        name = f"{_COOKIE}{os.getpid()}-{next(self._numbers)}"
        event = self._cookies[name] = asyncio.Event()
        path = Path(self._own, name)
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
    """Why a file system tells of no events of other hosts; empty: it does."""
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
    return f"{best} is a network file system ({kind})" if kind in _NETWORK else ""


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return _LIMIT
    return f"no events can be had: {error}"
