"""One server per SQLite file. The system drops the lock when the process dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hai_backend.domain.errors import Unavailable


def lock(database: Path) -> int:
    """Lock the file beside the database and answer with its descriptor; closing that unlocks."""
    path = database.with_name(database.name + ".lock")
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode() or "unknown"
        os.close(descriptor)
        raise Unavailable(
            f"the database {database} is in use by another server (process {holder});"
            " stop that one, or give this one another path",
            reason="STORE_IN_USE",
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor
