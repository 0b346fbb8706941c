"""Replaces files atomically. A reader sees the old file or the new one, never a part of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """Write a new file that replaces `path` at the end. An error leaves the old file as it was. Raises OSError.

    The new file has `mode`, less the umask. A symbolic link is replaced and not followed.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(temporary, _NEW, mode), "wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file and flush it to disk. Only its owner may read the new file. Raises OSError."""
    with replacing(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
