"""Reports changes below a directory with Linux inotify. Each directory has one watch. Symbolic links are not followed.

The package watchfiles is not used, because it follows links: it reports files under other names, watches directories
outside the root, and stops watching a directory when a link to it is removed. It also does not report that the kernel
has dropped events.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct

_READ_BYTES = 1 << 18
_HEAD = Struct("iIII")  # watch, mask, cookie, length of the name in bytes
_MODIFIED, _ATTRIBUTES, _WRITTEN, _FROM, _TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATED, _REMOVED = 0x100, 0x200
_OVERFLOW, _IGNORED, _FOLDER = 0x4000, 0x8000, 0x4000_0000
_NO_LINKS = 0x0300_0000  # watch only directories, and do not follow links
_EVENTS = _MODIFIED | _ATTRIBUTES | _WRITTEN | _FROM | _TO | _CREATED | _REMOVED | _NO_LINKS
# events after which a directory must be watched; a change of attributes may make it readable
_NEW = _CREATED | _TO | _ATTRIBUTES


class Inotify:
    """The watches of a root and the directories below it. Directories below a leaf are not watched."""

    def __init__(self, root: str, is_leaf: Callable[[str], bool]) -> None:
        self._root = root
        self._is_leaf = is_leaf
        self._libc = ctypes.CDLL(None, use_errno=True)
        # paths by watch; a moved directory has its old path until it is added again
        self._folders: dict[int, str] = {}
        self.file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.file < 0:
            raise _error()

    def close(self) -> None:
        """End all watches."""
        os.close(self.file)

    def add(self, top: str) -> None:
        """Watch a directory and all directories below it. Raises OSError at the limit of watches."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            if self._watch(folder) and not self._is_leaf(folder):
                waiting += self._inside(folder)

    def _watch(self, folder: str) -> bool:
        """Watch one directory. Return False if it does not exist any more or is not readable."""
        at = os.fsencode(os.path.join(self._root, folder))
        number = self._libc.inotify_add_watch(self.file, at, _EVENTS)
        if number >= 0:
            self._folders[number] = folder
        elif ctypes.get_errno() in (errno.ENOSPC, errno.ENOMEM):
            raise _error()
        return bool(number >= 0)

    def _inside(self, folder: str) -> list[str]:
        prefix = folder + "/" if folder else ""
        with suppress(OSError), os.scandir(os.path.join(self._root, folder)) as items:
            return [prefix + item.name for item in items if item.is_dir(follow_symlinks=False)]
        return []

    def read(self) -> set[str] | None:
        """Return the paths that have changed; None if events were lost or the root is not watched any more.

        Raises OSError at the limit of watches.
        """
        paths = set()
        for number, mask, name in self._events():
            folder = self._folders.get(number)
            if mask & _IGNORED:
                self._folders.pop(number, None)
            if mask & _OVERFLOW or (mask & _IGNORED and folder == ""):
                return None
            if folder is None or not name:
                continue
            path = f"{folder}/{name}" if folder else name
            paths.add(path)
            if mask & _FOLDER and mask & _NEW:
                self.add(path)
        return paths

    def _events(self) -> Iterator[tuple[int, int, str]]:
        try:
            data = os.read(self.file, _READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            number, mask, _, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size + size
            yield number, mask, os.fsdecode(data[at - size : at].rstrip(b"\0"))


def _error() -> OSError:
    return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
