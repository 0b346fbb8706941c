"""Files that are replaced as a whole: a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """A new file that is put there at the end; what fails leaves what was there, and nothing beside it. Raises OSError.

    `mode` (less the umask) is that of a new file; a link is replaced and not followed.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(temporary, _NEW, mode), "wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Durable, and for its owner only. Raises OSError."""
    with replacing(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
