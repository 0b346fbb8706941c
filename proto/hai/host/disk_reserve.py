"""Reserves the last bytes of a disk for the database: other writes are refused before."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import NamedTuple

RESERVE_BYTES = 512 << 20
_SHARE = 20  # of a small disk, one part in so many
_LOW_SHARE, _LOW_BYTES = 10, 50 << 30  # less than this is a warning
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
    """The space of the file system of a path, for users other than root. Raises OSError."""
    found = os.statvfs(path)
    total = found.f_blocks * found.f_frsize
    return DiskSpace(total, found.f_bavail * found.f_frsize, min(RESERVE_BYTES, total // _SHARE))


class DiskReserve:
    """The reserve on the disk of one directory. Its free space is cached: a network file system answers slowly."""

    def __init__(self, root: Path, cache_seconds: float = 0.0) -> None:
        self._root = root
        self._cache_seconds = cache_seconds
        self._checked_at = float("-inf")
        self._free = 0

    def free(self) -> int:
        """Free bytes outside the reserve; unlimited for file systems that do not report their size (some of FUSE)."""
        now = time.monotonic()
        if now - self._checked_at >= self._cache_seconds:
            space = disk_space(self._root)
            self._free, self._checked_at = space.free if space.total else 1 << 62, now
        return self._free

    def require(self, size: int = 0) -> None:
        """Raises OSError (ENOSPC) when so many bytes would touch the reserve."""
        if (free := self.free()) < size:
            left = max(0, free) // _MB
            problem = f"{left} MB are left beside what is reserved for the database"
            raise OSError(errno.ENOSPC, problem, str(self._root))
