"""Provides a private directory for the sockets of a kernel, instead of the directory of its notebook.

In a task, it is inside the rank's own directory, which the platform always removes after the end of the rank.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hai.task import env

_MAX_PATH_BYTES = 80  # a socket path has at most 107 bytes, a file name in the directory 25
_PREFIX = "kernel-"


@contextmanager
def kernel_dir() -> Iterator[Path]:
    """Create a directory with a short path for the sockets of one kernel; remove it at the end."""
    rank_directory, directory = _rank_directory(), None
    if rank_directory is not None:
        with suppress(OSError):  # the directory may not be writable
            directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=rank_directory))
    directory = directory or _make_short()
    try:
        yield directory if _is_short(directory) else _link_short(directory)
    finally:
        _remove(directory)


def _rank_directory() -> Path | None:
    control = os.environ.get(env.CONTROL_FILE)
    return Path(control).parent if control else None


def _is_short(path: Path) -> bool:
    return len(os.fsencode(path)) <= _MAX_PATH_BYTES


def _make_short() -> Path:
    return Path(tempfile.mkdtemp(prefix="hai-", dir="/tmp"))


def _link_short(directory: Path) -> Path:
    """Create a directory with a short path, and a link to it in `directory`, by which `_remove` finds it."""
    short = _make_short()
    (directory / "short").symlink_to(short)
    return short


def _remove(directory: Path) -> None:
    link = directory / "short"
    if link.is_symlink():
        shutil.rmtree(link.readlink(), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
