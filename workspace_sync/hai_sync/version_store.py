"""Stores versions of local files that a sync has overwritten or removed, for `haiworkspace restore --local`.

The versions are outside of the tree. Each sync has one directory, named by its time, in which files have the same
paths as in the tree. A version is deleted when there were syncs on thirty days after it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hai_sync.core.entry import is_within

RETENTION_DAYS = 30
_DAY_SECONDS = 86_400
_DAYS_FILE = "days"


@dataclass(frozen=True, slots=True)
class Version:
    """One saved version."""

    stamp: str  # milliseconds since 1970
    path: str
    size: int

    @property
    def time(self) -> float:
        """The time when the file was overwritten, in seconds since 1970."""
        return int(self.stamp) / 1000


class VersionStore:
    """The saved versions of one workspace."""

    def __init__(self, folder: Path, stamp: str = "") -> None:
        self._folder = folder
        self._stamp = stamp or str(time.time_ns() // 1_000_000)

    def add(self, source: str, path: str) -> None:
        """Move a file, which nothing else uses, into the store."""
        target = self._target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(source, target)
        except OSError:  # another file system
            self._copy(source, target)
            os.unlink(source)

    def _copy(self, source: str, target: Path) -> None:
        """Copy a file completely or not at all, also on a full disk. An incomplete copy is never listed."""
        incoming = self._folder / "arriving"
        incoming.unlink(missing_ok=True)  # left by a killed process
        try:
            shutil.copy2(source, incoming, follow_symlinks=False)
            os.rename(incoming, target)
        except OSError:
            incoming.unlink(missing_ok=True)
            raise

    def _target(self, path: str) -> Path:
        """Return the path for a version. A second version within one sync has a number."""
        target = self._folder / self._stamp / path
        number = 1
        while os.path.lexists(target):
            number += 1
            target = self._folder / f"{self._stamp}.{number}" / path
        return target

    def versions(self) -> Iterator[Version]:
        """Yield all versions, oldest first."""
        for stamp in self._stamps():
            root = self._folder / stamp
            for folder, folders, files in os.walk(root):
                links = [name for name in folders if Path(folder, name).is_symlink()]
                for name in sorted(files + links):
                    path = Path(folder, name)
                    yield Version(
                        stamp.partition(".")[0], str(path.relative_to(root)), path.lstat().st_size
                    )

    def find(self, path: str, stamp: str = "") -> Path | None:
        """Return the newest version of a file or link, or the one of a time stamp."""
        found = [self._folder / s for s in self._stamps() if s.startswith(stamp)]
        return next((root / path for root in reversed(found) if _contains_file(root, path)), None)

    def paths_below(self, folder: str) -> list[str]:
        """Return the paths below a directory that have versions."""
        return sorted({v.path for v in self.versions() if is_within(v.path, folder)})

    def prune(self, now: float) -> None:
        """Delete versions that are older than the last thirty days on which this method was called.

        The clock alone is not enough: one sync with a clock far ahead would make every version old. Such a sync
        counts as one more day, which is dropped when the clock is right again. A clock that is behind restarts the
        count.
        """
        today, recorded = int(now // _DAY_SECONDS), self._recorded_days()
        if today in recorded or not self._folder.is_dir():
            return
        days = sorted({day for day in recorded if day < today} | {today})[-RETENTION_DAYS:]
        for stamp in self._stamps() if len(days) == RETENTION_DAYS else ():
            if _milliseconds(stamp) < days[0] * _DAY_SECONDS * 1000:
                shutil.rmtree(self._folder / stamp, ignore_errors=True)
        with suppress(OSError):  # on a full disk versions are kept longer
            (self._folder / _DAYS_FILE).write_text(" ".join(map(str, days)))

    def _recorded_days(self) -> set[int]:
        """Return the days since 1970 on which `prune` was called. A damaged file makes versions last longer."""
        try:
            text = (self._folder / _DAYS_FILE).read_text("ascii", "ignore")
        except OSError:
            return set()
        return {int(day) for day in text.split() if day.isdigit()}

    def _stamps(self) -> list[str]:
        try:
            found = [name for name in os.listdir(self._folder) if name[:1].isdigit()]
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda name: (_milliseconds(name), name))


def _contains_file(root: Path, path: str) -> bool:
    """Return whether a file or link exists, and no directory in its path is a link."""
    at = root.resolve() / path
    return at.parent.resolve() == at.parent and (at.is_symlink() or at.is_file())


def _milliseconds(stamp: str) -> int:
    return int(stamp.partition(".")[0])
