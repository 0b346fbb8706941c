"""Decides by the stat of a file whether the file is unchanged.

An unchanged stat is a proof only if every later change would have changed it. Clocks of file systems are coarse, so a
file that was changed just before it was observed may be changed again without another stat.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from stat import S_ISREG

GRANULE_NS = 2_000_000_000  # the coarsest clock that is supported


@dataclass(frozen=True, slots=True)
class Stat:
    """The stat of a regular file, and the time at which it was read."""

    size: int
    mtime_ns: int
    ino: int
    ctime_ns: int
    observed_ns: int = 0

    def proves_unchanged(self, current: Stat) -> bool:
        """Return whether `current` proves that the file has not changed since this stat was read."""
        is_same = (self.size, self.mtime_ns, self.ino, self.ctime_ns) == (
            current.size,
            current.mtime_ns,
            current.ino,
            current.ctime_ns,
        )
        return is_same and (self._is_old(self.mtime_ns) or self._is_old(self.ctime_ns))

    def _is_old(self, time_ns: int) -> bool:
        return time_ns + GRANULE_NS < self.observed_ns


def has_mtime(set_ns: int, actual_ns: int) -> bool:
    """Return whether a file still has the time that was set. File systems with a coarse clock round the time down."""
    return 0 <= set_ns - actual_ns < GRANULE_NS


def make_stat(status: os.stat_result, observed_ns: int = 0) -> Stat:
    return Stat(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns, observed_ns)


def read_stat(name: str, folder: int, observed_ns: int = 0) -> Stat | None:
    """Return the stat of a regular file in an open directory; None if there is none. Do not follow links."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return make_stat(status, observed_ns) if S_ISREG(status.st_mode) else None
