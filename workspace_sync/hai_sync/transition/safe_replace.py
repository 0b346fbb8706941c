"""Creates, overwrites and removes files so that no version is ever lost.

A file that is overwritten or removed first gets a second name, is checked for changes, and then goes to the version
store.
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

from hai_sync.file_fingerprint import Fingerprint, fingerprint
from hai_sync.version_store import VersionStore

FaultHook = Callable[[str], None]
"""Called with the name of each step that changes the disk, before the step. Tests raise errors from it."""

BACKUP_PREFIX = "held-"
"""Prefix of the names of old versions that are not yet in the version store."""

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
# errors of systems and file systems that cannot exchange names, or have no hard links
_CANNOT_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)


class PathChanged(Exception):
    """The path changed after the plan was made."""


@dataclass(slots=True)
class SafeReplace:
    """Replaces files. `temp_dir` is on the same file system, for old versions before they go to `versions`."""

    expected: Mapping[str, Fingerprint]
    versions: VersionStore
    temp_dir: Path
    fault_hook: FaultHook
    _number: int = 0

    def temp_path(self) -> str:
        """Return a new path in `temp_dir`."""
        self._number += 1
        return str(self.temp_dir / f"{BACKUP_PREFIX}{os.getpid()}-{self._number}")

    def require_unchanged(self, path: str, status: os.stat_result | None, exists: bool) -> None:
        """Raise PathChanged unless the path is as expected or, without `exists`, missing."""
        current = fingerprint(status) if status is not None else None
        if current != (self.expected.get(path) if exists else None):
            raise PathChanged("it changed meanwhile")

    def remove(self, path: str, folder: int, name: str) -> None:
        """Remove a file: rename it, check it, and restore its name if it has changed."""
        backup = self.temp_path()
        self.fault_hook("hold")
        os.rename(name, backup, src_dir_fd=folder)
        if self.expected.get(path) != _ignoring_ctime(backup, self.expected.get(path)):
            with suppress(FileExistsError):
                os.link(backup, name, dst_dir_fd=folder, follow_symlinks=False)
                os.unlink(backup)
            raise PathChanged("it changed while it was about to be removed")
        self.fault_hook("keep")
        self.versions.add(backup, path)

    def create(self, staged: str, folder: int, name: str) -> None:
        """Create a file by a hard link. Unlike a rename, this never overwrites a file that was created meanwhile."""
        self.fault_hook("create")
        try:
            os.link(staged, name, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise PathChanged("something was created in its place") from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.rename(staged, name, dst_dir_fd=folder)  # the file system has no hard links
            return
        self.fault_hook("created")
        os.unlink(staged)

    def overwrite(self, path: str, staged: str, folder: int, name: str) -> None:
        """Overwrite a file. The old one gets another name in the same step, so that a concurrent write is not lost."""
        backup = self.temp_path()
        self.fault_hook("hold")
        os.rename(staged, backup)
        try:
            self.fault_hook("overwrite")
            if not exchange(backup, folder, name):
                backup = self._replace(backup, folder, name)
        except OSError:
            os.rename(backup, staged)
            raise
        self.fault_hook("keep")
        self.versions.add(backup, path)

    def _replace(self, new: str, folder: int, name: str) -> str:
        """Replace a file in two steps. Return the path of the old file."""
        backup = self.temp_path()
        try:
            os.link(name, backup, src_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.rename(name, backup, src_dir_fd=folder)  # the name does not exist for a moment
        os.replace(new, name, dst_dir_fd=folder)
        return backup


def _ignoring_ctime(backup: str, before: Fingerprint | None) -> Fingerprint:
    """Return the fingerprint after a rename, or `before` if it differs only in ctime, which a rename sets."""
    current = fingerprint(os.lstat(backup))
    if before is None or len(before) != len(current):
        return current
    return before if before[:16] + before[24:] == current[:16] + current[24:] else current


def exchange(path: str, folder: int, name: str) -> bool:
    """Exchange a path with a name in an open directory atomically. Return False if unsupported. Raises OSError."""
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
    import ctypes  # imported late: most syncs overwrite nothing

    libc = ctypes.CDLL(None, use_errno=True)
    return getattr(libc, "renameat2", None) or getattr(libc, "renameatx_np", None)
