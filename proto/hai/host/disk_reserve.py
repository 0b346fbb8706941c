"""Reserves the last free bytes of a disk for the database. Other writes are refused if they would use the reserve."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import NamedTuple

RESERVE_BYTES = 512 << 20
_SHARE = 20  # the reserve of a small disk is the total divided by this
# free space is low below a tenth of the disk or 50 GiB, whichever is smaller
_LOW_SHARE, _LOW_BYTES = 10, 50 << 30
_MB = 1 << 20


class DiskSpace(NamedTuple):
    """The space of a file system in bytes. `free` excludes the reserve, and is negative within it."""

    total: int
    available: int
    reserve: int

    @property
    def free(self) -> int:
        return self.available - self.reserve

    @property
    def is_low(self) -> bool:
        """Whether an operator should free space soon."""
        return self.free < min(self.total // _LOW_SHARE, _LOW_BYTES)


def disk_space(path: Path) -> DiskSpace:
    """Return the space of the file system that contains a path, as available to normal users. Raises OSError."""
    found = os.statvfs(path)
    total = found.f_blocks * found.f_frsize
    return DiskSpace(total, found.f_bavail * found.f_frsize, min(RESERVE_BYTES, total // _SHARE))


class DiskReserve:
    """The reserve on the disk of one directory. Its free space is cached, because a network file system is slow."""

    def __init__(self, root: Path, cache_seconds: float = 0.0) -> None:
        self._root = root
        self._cache_seconds = cache_seconds
        self._checked_at = float("-inf")
        self._free = 0

    def free(self) -> int:
        """Return the free bytes outside the reserve; unlimited if the file system reports no size (some of FUSE)."""
        now = time.monotonic()
        if now - self._checked_at >= self._cache_seconds:
            space = disk_space(self._root)
            self._free, self._checked_at = space.free if space.total else 1 << 62, now
        return self._free

    def require(self, size: int = 0) -> None:
        """Raise OSError (ENOSPC) if a write of `size` bytes would use the reserve."""
        if (free := self.free()) < size:
            left = max(0, free) // _MB
            problem = f"{left} MB are left beside what is reserved for the database"
            raise OSError(errno.ENOSPC, problem, str(self._root))
