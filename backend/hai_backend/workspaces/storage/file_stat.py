"""Whether a file is still what the index says, by its stat alone.

A stat is believed when it is the one that was seen and when any later change would have shown in it: clocks of file
systems are coarse, so what was changed just before it was seen may be changed again without a trace.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from stat import S_ISREG

GRANULE_NS = 2_000_000_000  # the coarsest clock that we believe in


@dataclass(frozen=True, slots=True)
class Stat:
    """Of a regular file, and when it was taken."""

    size: int
    mtime_ns: int
    ino: int
    ctime_ns: int
    seen_ns: int = 0

    def trusts(self, now: Stat) -> bool:
        """Whether the file has not changed since this was seen."""
        same = (self.size, self.mtime_ns, self.ino, self.ctime_ns) == (
            now.size,
            now.mtime_ns,
            now.ino,
            now.ctime_ns,
        )
        return same and (self._old(self.mtime_ns) or self._old(self.ctime_ns))

    def _old(self, moment_ns: int) -> bool:
        return moment_ns + GRANULE_NS < self.seen_ns


def bears(given_ns: int, found_ns: int) -> bool:
    """Whether a file that was given a time still has it: file systems with a coarse clock round it down."""
    return 0 <= given_ns - found_ns < GRANULE_NS


def stat_of(found: os.stat_result, seen_ns: int = 0) -> Stat:
    """What we keep of it."""
    return Stat(found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns, seen_ns)


def look(name: str, folder: int, seen_ns: int = 0) -> Stat | None:
    """Of a regular file in an open directory; None: there is no such file. Links are not followed."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat_of(found, seen_ns) if S_ISREG(found.st_mode) else None
