"""Flushes new contents to the disk before they get their names.

After a loss of power the disk then has the old file or the new one, never an empty one, which the next sync would
take for an edit.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_FEW = 16  # up to so many files are flushed one by one, for more the whole file system


def flush(folder: Path, files: Sequence[Path]) -> None:
    """Wait until these files of a directory are on the disk. Raises OSError."""
    if len(files) > _FEW:
        _flush_all(folder)
        return
    for path in files:
        with suppress(FileNotFoundError):  # the download of this file failed
            _flush_one(path)


def _flush_one(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _flush_all(folder: Path) -> None:
    if sys.platform != "linux":
        os.sync()
        return
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(at) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(at)
