"""Versions of local files that a sync has overwritten or removed, so that they can be had back.

They lie outside the tree, in one directory per sync (named by its time), under their own paths. Those
go after which there were syncs on thirty days.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hai_sync.core.entry import below

DAYS = 30
_DAY_SECONDS = 86_400
_DAYS_SEEN = "days"


@dataclass(frozen=True, slots=True)
class Version:
    """One version that was kept."""

    stamp: str  # milliseconds since 1970
    path: str
    size: int

    @property
    def time(self) -> float:
        """When it was overwritten."""
        return int(self.stamp) / 1000


class VersionStore:
    """The store of one workspace."""

    def __init__(self, folder: Path, stamp: str = "") -> None:
        self._folder = folder
        self._stamp = stamp or str(time.time_ns() // 1_000_000)

    def keep(self, held: str, path: str) -> None:
        """Take a file (that nobody else uses) into the store."""
        target = self._target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(held, target)
        except OSError:  # another file system
            self._copy(held, target)
            os.unlink(held)

    def _copy(self, held: str, target: Path) -> None:
        """Whole or not at all, when the disk is full too: a name that is no time is never listed."""
        arriving = self._folder / "arriving"
        arriving.unlink(missing_ok=True)  # of a run that was killed
        try:
            shutil.copy2(held, arriving, follow_symlinks=False)
            os.rename(arriving, target)
        except OSError:
            arriving.unlink(missing_ok=True)
            raise

    def _target(self, path: str) -> Path:
        """A second version within one sync (a file changed while it was replaced) has its own name."""
        target = self._folder / self._stamp / path
        number = 1
        while os.path.lexists(target):
            number += 1
            target = self._folder / f"{self._stamp}.{number}" / path
        return target

    def versions(self) -> Iterator[Version]:
        """All that there is, oldest first."""
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
        """The newest version of a file or link, or that of a time."""
        found = [self._folder / s for s in self._stamps() if s.startswith(stamp)]
        return next((root / path for root in reversed(found) if _holds(root, path)), None)

    def below(self, folder: str) -> list[str]:
        """Files and links in a directory of which there are versions."""
        return sorted({v.path for v in self.versions() if below(v.path, folder)})

    def prune(self, now: float) -> None:
        """Let those go that are older than thirty days on which this was asked.

        The clock alone would not do: one sync while it is far ahead would make everything old. So that is
        but one more day, and forgotten once the clock is right again; a clock that is behind begins anew.
        """
        today, seen = int(now // _DAY_SECONDS), self._days_seen()
        if today in seen or not self._folder.is_dir():
            return
        days = sorted({day for day in seen if day < today} | {today})[-DAYS:]
        for stamp in self._stamps() if len(days) == DAYS else ():
            if _milliseconds(stamp) < days[0] * _DAY_SECONDS * 1000:
                shutil.rmtree(self._folder / stamp, ignore_errors=True)
        with suppress(OSError):  # a full disk: versions stay longer
            (self._folder / _DAYS_SEEN).write_text(" ".join(map(str, days)))

    def _days_seen(self) -> set[int]:
        """Days since 1970, as of the last time; torn by a crash, versions stay longer."""
        try:
            text = (self._folder / _DAYS_SEEN).read_text("ascii", "ignore")
        except OSError:
            return set()
        return {int(day) for day in text.split() if day.isdigit()}

    def _stamps(self) -> list[str]:
        try:
            found = [name for name in os.listdir(self._folder) if name[:1].isdigit()]
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda name: (_milliseconds(name), name))


def _holds(root: Path, path: str) -> bool:
    """Is it a file or a link there, and no link the way to it?"""
    at = root.resolve() / path
    return at.parent.resolve() == at.parent and (at.is_symlink() or at.is_file())


def _milliseconds(stamp: str) -> int:
    return int(stamp.partition(".")[0])
