"""What servers that were killed have left: halves of uploads, directories of builds. Neither is at work for a day."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

_SECONDS = 24 * 3600


def sweep(folder: Path, names: re.Pattern[str]) -> None:
    """Delete what has such a name, unless somebody wrote to it within a day; other servers may be at work there."""
    with suppress(OSError):
        for path in folder.iterdir():
            if names.fullmatch(path.name):
                _delete(path)


def _delete(path: Path) -> None:
    """Others may have taken it, or it is another account's."""
    with suppress(OSError):
        if time.time() - path.lstat().st_mtime < _SECONDS:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
