"""Where the sockets of a kernel lie: never in the folder of its notebook, where those of others would be, too.

In a task that is the rank's own directory, which the platform removes when the rank has ended, however it ended.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hai.task import env

_LONGEST = (
    80  # bytes; the paths of sockets have 107, and the names of the files in it take up to 25
)
_PREFIX = "kernel-"


@contextmanager
def kernel_dir() -> Iterator[Path]:
    """A directory of its own with a short path, for the sockets of one kernel; it is removed at the end."""
    rank, made = _rank_dir(), None
    if rank is not None:
        with suppress(OSError):  # not ours to write
            made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=rank))
    made = made or _elsewhere()
    try:
        yield made if _is_short(made) else _linked(made)
    finally:
        _remove(made)


def _rank_dir() -> Path | None:
    control = os.environ.get(env.CONTROL_FILE)
    return Path(control).parent if control else None


def _is_short(path: Path) -> bool:
    return len(os.fsencode(path)) <= _LONGEST


def _elsewhere() -> Path:
    return Path(tempfile.mkdtemp(prefix="hai-", dir="/tmp"))


def _linked(made: Path) -> Path:
    """A short directory instead; a link in the one that was made tells the platform what else it is to remove."""
    short = _elsewhere()
    (made / "short").symlink_to(short)
    return short


def _remove(made: Path) -> None:
    link = made / "short"
    if link.is_symlink():
        shutil.rmtree(link.readlink(), ignore_errors=True)
    shutil.rmtree(made, ignore_errors=True)
