"""Files that changed while they were read, until they are quiet and worth reading again.

No event tells that a file is quiet. A daemon therefore looks at these few files from time to time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hai_sync.file_fingerprint import Signature, signature

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds that a file must stay the same: at first, and at most for one that seemed quiet and was not."""


@dataclass(slots=True)
class _File:
    seen: Signature | None
    since: float
    quiet_seconds: float = SHORTEST


class Unsettled:
    """The unsettled files of one root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, _File] = {}

    def replace(self, paths: Iterable[str], now: float) -> None:
        """The last sync left exactly these alone. Those of the sync before it keep what they have waited."""
        self._files = {path: self._files.get(path) or _File(None, now) for path in paths}

    def take_quiet(self, now: float) -> set[str]:
        """The files that have stayed the same for long enough; each must do so for twice as long the next time."""
        found = set()
        for path, file in self._files.items():
            seen = _signature_of(self._root / path)
            if seen != file.seen:
                file.seen, file.since = seen, now
            elif now - file.since >= file.quiet_seconds:
                file.since, file.quiet_seconds = now, min(2 * file.quiet_seconds, LONGEST)
                found.add(path)
        return found


def _signature_of(path: Path) -> Signature:
    """Of what is gone something that equals no file's."""
    try:
        return signature(os.lstat(path))
    except OSError:
        return b""
