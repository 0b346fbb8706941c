"""What servers have left: halves of uploads and directories of builds, wheels that nobody uses any more."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

_SECONDS = 24 * 3600  # neither a half nor a build is at work for so long


def sweep(folder: Path, names: re.Pattern[str], seconds: float = _SECONDS) -> None:
    """Delete what has such a name and no newer time than so long ago; other servers may be at work there."""
    with suppress(OSError):
        for path in folder.iterdir():
            if names.fullmatch(path.name):
                _delete(path, seconds)


def _delete(path: Path, seconds: float) -> None:
    """Others may have taken it, or it is another account's."""
    with suppress(OSError):
        if time.time() - path.lstat().st_mtime < seconds:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
