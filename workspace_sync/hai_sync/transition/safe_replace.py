"""How a file gets to its place and away from it, so that no version is ever lost.

What is overwritten or removed is looked at again at the last moment, has a second name from then on, and is kept.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hai_sync.file_fingerprint import Signature, signature
from hai_sync.version_store import VersionStore

Fault = Callable[[str], None]
"""Called before each step that changes the disk, with its name; tests raise from it."""

HELD = "held-"
"""How the names of versions begin that are on their way to the kept ones."""

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_CANNOT_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)


class Moved(Exception):
    """The path is not as it was when the decision was made."""


@dataclass(slots=True)
class SafeReplace:
    """The old and the new ones. `hold`: a directory on the same file system for what is on its way to `kept`."""

    seen: Mapping[str, Signature]
    kept: VersionStore
    hold: Path
    fault: Fault
    _number: int = 0

    def name(self) -> str:
        """A new one in `hold`."""
        self._number += 1
        return str(self.hold / f"{HELD}{os.getpid()}-{self._number}")

    def require_as_seen(self, path: str, status: os.stat_result | None, there: bool) -> None:
        """Raises Moved unless it is as it was seen; not `there`: unless there is nothing."""
        now = signature(status) if status is not None else None
        if now != (self.seen.get(path) if there else None):
            raise Moved("it changed meanwhile")

    def take_away(self, path: str, folder: int, name: str) -> None:
        """By a rename, a look, and putting back what has changed in between."""
        held = self.name()
        self.fault("hold")
        os.rename(name, held, src_dir_fd=folder)
        if self.seen.get(path) != _as_before(held, self.seen.get(path)):
            with suppress(FileExistsError):
                os.link(held, name, dst_dir_fd=folder, follow_symlinks=False)
                os.unlink(held)
            raise Moved("it changed while it was about to be removed")
        self.fault("keep")
        self.kept.keep(held, path)

    def create(self, staged: str, folder: int, name: str) -> None:
        """A link, unlike a rename, overwrites nothing that has come in between."""
        self.fault("create")
        try:
            os.link(staged, name, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise Moved("something was created in its place") from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.rename(staged, name, dst_dir_fd=folder)  # a file system without links
            return
        self.fault("created")
        os.unlink(staged)

    def overwrite(self, path: str, staged: str, folder: int, name: str) -> None:
        """The old file gets another name in the same step: who writes it, or has just replaced it, loses nothing."""
        held = self.name()
        self.fault("hold")
        os.rename(staged, held)
        try:
            self.fault("overwrite")
            if not exchange(held, folder, name):
                held = self._replace(held, folder, name)
        except OSError:
            os.rename(held, staged)
            raise
        self.fault("keep")
        self.kept.keep(held, path)

    def _replace(self, new: str, folder: int, name: str) -> str:
        """In two steps; answers where the old file is."""
        held = self.name()
        try:
            os.link(name, held, src_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.rename(name, held, src_dir_fd=folder)  # nothing is there for a moment
        os.replace(new, name, dst_dir_fd=folder)
        return held


def _as_before(held: str, before: Signature | None) -> Signature:
    """What a file is after a rename, which sets its time of change, if the rest is as it was; else what it is."""
    now = signature(os.lstat(held))
    if before is None or len(before) != len(now):
        return now
    return before if before[:16] + before[24:] == now[:16] + now[24:] else now


def exchange(path: str, folder: int, name: str) -> bool:
    """An absolute path, and a name in an open directory. False: this file system cannot. Raises OSError."""
    rename = _rename()
    if rename is None:
        return False
    sys.audit("os.rename", path, name, folder, folder)
    old, new = os.fsencode(path), os.fsencode(name)
    if rename(folder, old, folder, new, _EXCHANGE) == 0:
        return True
    import ctypes

    number = ctypes.get_errno()
    if number in _CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), name)


@cache
def _rename() -> Callable[..., Any] | None:
    import ctypes  # here, since most syncs overwrite nothing

    libc = ctypes.CDLL(None, use_errno=True)
    return getattr(libc, "renameat2", None) or getattr(libc, "renameatx_np", None)
