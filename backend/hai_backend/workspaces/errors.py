"""What storage refuses becomes one clear error, with the path and the cause; nothing was done by halves."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from hai_backend.domain.errors import Exhausted, HaiError, Unavailable

log = structlog.get_logger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_GONE = frozenset({errno.ENOENT, errno.ESTALE, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Raises HaiError for what goes wrong on storage."""
    try:
        yield
    except OSError as error:
        raise _of_system(path, error) from error
    except sqlite3.Error as error:
        raise _of_index(path, error) from error


def _of_system(path: Path, error: OSError) -> HaiError:
    log.warning("storage of a workspace failed", path=str(path), why=str(error))
    if error.errno in _FULL:
        return full()
    if error.errno in _REFUSED:
        return _unavailable(
            "STORAGE_REFUSES", f"the server may not write {_where(path)}", error.strerror
        )
    if error.errno in _GONE:
        return _unavailable("STORAGE_LOST", f"{_where(path)} is not where it was", error.strerror)
    return _unavailable("STORAGE_FAILS", f"the storage of {_where(path)} fails", str(error))


def _of_index(path: Path, error: sqlite3.Error) -> HaiError:
    log.warning("the index of a workspace failed", path=str(path), why=str(error))
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return full()
    if code == sqlite3.SQLITE_BUSY:
        return _unavailable("STORAGE_BUSY", f"another server still has {_where(path)}", "ask again")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return _unavailable(
            "STORAGE_REFUSES", f"the server may not write {_where(path)}", str(error)
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return _unavailable("STORAGE_LOST", f"{_where(path)} is not where it was", str(error))
    return _unavailable("STORAGE_FAILS", f"the index of {_where(path)} cannot be used", str(error))


def full() -> Exhausted:
    """No room on the file system but for what the database may need."""
    return Exhausted(
        "the storage of workspaces is full but for what is reserved for the database; "
        "what had arrived is kept for a day, push again when there is room",
        reason="DISK_FULL",
    )


def _unavailable(reason: str, what: str, why: str | None) -> Unavailable:
    return Unavailable(f"{what}: {why}; an operator must look at the storage", reason=reason)


def _where(path: Path) -> str:
    return f"workspace {path.parent.name}/{path.name}"
