"""Tells by its stat alone whether a file is unchanged.

A stat is trusted when it equals the recorded one and any later change would have been visible in it: clocks of file
systems are coarse, so a file that was changed just before it was observed may be changed again without a trace.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from stat import S_ISREG

GRANULE_NS = 2_000_000_000  # the coarsest clock that is supported


@dataclass(frozen=True, slots=True)
class Stat:
    """The stat of a regular file, and when it was taken."""

    size: int
    mtime_ns: int
    ino: int
    ctime_ns: int
    observed_ns: int = 0

    def proves_unchanged(self, now: Stat) -> bool:
        """Tells whether the file has not changed since this stat was taken."""
        same = (self.size, self.mtime_ns, self.ino, self.ctime_ns) == (
            now.size,
            now.mtime_ns,
            now.ino,
            now.ctime_ns,
        )
        return same and (self._is_old(self.mtime_ns) or self._is_old(self.ctime_ns))

    def _is_old(self, time_ns: int) -> bool:
        return time_ns + GRANULE_NS < self.observed_ns


def has_mtime(set_ns: int, found_ns: int) -> bool:
    """Tells whether a file still has the time that was set: file systems with a coarse clock round it down."""
    return 0 <= set_ns - found_ns < GRANULE_NS


def stat_of(found: os.stat_result, observed_ns: int = 0) -> Stat:
    return Stat(found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns, observed_ns)


def read_stat(name: str, folder: int, observed_ns: int = 0) -> Stat | None:
    """Returns the stat of a regular file in an open directory; None if there is none. Links are not followed."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat_of(found, observed_ns) if S_ISREG(found.st_mode) else None
