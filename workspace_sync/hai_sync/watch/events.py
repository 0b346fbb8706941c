"""Paths that may have changed. Events are hints: whoever gets them looks at the files again.

Where events cannot be had (a network file system, the limit of inotify) the hint is "anything", at an
interval. A cookie is a file of our own whose event tells that all earlier events have arrived. watchfiles
ends at an event of a name that is not UTF-8: it is begun again, and everything is looked at.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from watchfiles import awatch

from hai_sync.core.names import OWN

STEP_MS = 3  # watchfiles looks for new events this often; costs 1 % of a core
POLL_SECONDS = 5.0
_AGAIN_SECONDS = 1.0  # to begin costs a walk, and the name may be one that is written all the time
_COOKIE = "cookie-"
_OPEN_FILES = "/proc/self/fdinfo"
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
        self._own = os.path.join(self._root, OWN) + os.sep
        self._cookies: dict[str, asyncio.Event] = {}
        self._numbers = itertools.count(1)
        self.why_polling = network_type(root)

    async def hints(self) -> AsyncIterator[set[str] | None]:
        """Sets of paths; None: anything may have changed. Ends when the root is gone."""
        if not self.why_polling:
            try:
                async for paths in self._watched_again():
                    yield paths
                if not self.why_polling:
                    return
            except (OSError, RuntimeError, UnicodeEncodeError) as error:
                self.why_polling = _words(error)
        while self._there():
            yield None
            await asyncio.sleep(POLL_SECONDS)

    async def _watched_again(self) -> AsyncIterator[set[str] | None]:
        while self._there():
            try:
                async for paths in self._watched():
                    yield paths
                return
            except ExceptionGroup as several:
                error = several.exceptions[0]
                if "Unable to decode path" not in str(error):
                    raise error from None
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _watched(self) -> AsyncIterator[set[str] | None]:
        yield None  # what happened before we began to watch
        watching = awatch(
            self._root,
            watch_filter=None,
            debounce=STEP_MS * 2,
            step=STEP_MS,
            recursive=True,
            ignore_permission_denied=True,
            rust_timeout=1000,
            yield_on_timeout=True,
        )
        async for changes in watching:
            if self.why_polling or not self._there():
                return
            paths = {path for _, path in changes}
            own = {path for path in paths if path.startswith(self._own)}
            if hints := {path[len(self._root) + 1 :] for path in paths - own}:
                yield None if "" in hints else hints
            self._seen(own)  # whoever waits for a cookie may rely on the hints being taken

    def lacks_watches(self, folders: int) -> bool:
        """Whether fewer directories are watched than there are."""
        return not self.why_polling and os.path.isdir(_OPEN_FILES) and watches() < folders

    def give_up(self) -> None:
        """The limit was reached: look every few seconds from now on."""
        self.why_polling = _LIMIT

    def _there(self) -> bool:
        return os.path.isdir(self._root)

    def _seen(self, own: set[str]) -> None:
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


def watches() -> int:
    """Directories that this process is told of by inotify."""
    count = 0
    for name in os.listdir(_OPEN_FILES):
        with suppress(FileNotFoundError):
            count += Path(_OPEN_FILES, name).read_bytes().count(b"inotify wd:")
    return count


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
    if isinstance(error, UnicodeEncodeError):
        return "no events can be had of a directory whose path is not UTF-8"
    text = str(error)
    if "limit" in text.lower() or "No space left" in text:
        return _LIMIT
    return f"no events can be had: {text}"
