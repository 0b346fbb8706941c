"""Tracks files that changed while they were read, until they are quiet (no longer change).

No event reports that a file is quiet. A daemon therefore polls these few files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hai_sync.file_fingerprint import Fingerprint, fingerprint

MIN_QUIET_SECONDS, MAX_QUIET_SECONDS = 1.0, 60.0
"""How long a file must stay unchanged: at first, and at most if it was quiet before and changed again."""


@dataclass(slots=True)
class _File:
    fingerprint: Fingerprint | None
    since: float
    quiet_seconds: float = MIN_QUIET_SECONDS


class UnstableFiles:
    """The unstable files of one root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, _File] = {}

    def replace(self, paths: Iterable[str], now: float) -> None:
        """Set the files that the last sync could not read. Files that were tracked before keep their waiting time."""
        self._files = {path: self._files.get(path) or _File(None, now) for path in paths}

    def take_quiet(self, now: float) -> set[str]:
        """Return the files that have been quiet for long enough. Each must be quiet twice as long the next time."""
        found = set()
        for path, file in self._files.items():
            fingerprint = _fingerprint_of(self._root / path)
            if fingerprint != file.fingerprint:
                file.fingerprint, file.since = fingerprint, now
            elif now - file.since >= file.quiet_seconds:
                file.since, file.quiet_seconds = now, min(2 * file.quiet_seconds, MAX_QUIET_SECONDS)
                found.add(path)
        return found


def _fingerprint_of(path: Path) -> Fingerprint:
    """Return the fingerprint of a file. That of a missing file equals no other."""
    try:
        return fingerprint(os.lstat(path))
    except OSError:
        return b""
