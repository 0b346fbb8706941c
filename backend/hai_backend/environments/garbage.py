"""Deletes leftovers of servers: partial uploads, build directories, and unused wheels."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

_SECONDS = 24 * 3600  # no upload and no build takes that long


def sweep(folder: Path, names: re.Pattern[str], seconds: float = _SECONDS) -> None:
    """Deletes entries with such a name that are older than `seconds`; other servers may be using the directory."""
    with suppress(OSError):
        for path in folder.iterdir():
            if names.fullmatch(path.name):
                _delete(path, seconds)


def _delete(path: Path, seconds: float) -> None:
    """Ignores errors: another server may have deleted it, or it belongs to another account."""
    with suppress(OSError):
        if time.time() - path.lstat().st_mtime < seconds:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
