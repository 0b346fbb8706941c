"""Maps errors of storage to errors for users, which name the workspace and the cause."""

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
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_MISSING = frozenset({errno.ENOENT, errno.ESTALE, errno.ENOTDIR, errno.ENODEV, errno.ENXIO})


@contextmanager
def map_storage_errors(path: Path) -> Iterator[None]:
    """Raise HaiError for errors of the file system and of the index."""
    try:
        yield
    except OSError as error:
        raise _from_os_error(path, error) from error
    except sqlite3.Error as error:
        raise _from_sqlite_error(path, error) from error


def _from_os_error(path: Path, error: OSError) -> HaiError:
    log.warning("storage of a workspace failed", path=str(path), detail=str(error))
    if error.errno in _FULL:
        return disk_full_error()
    if error.errno in _FORBIDDEN:
        return _unavailable(
            "STORAGE_REFUSES", f"the server may not write {_workspace_name(path)}", error.strerror
        )
    if error.errno in _MISSING:
        return _unavailable(
            "STORAGE_LOST", f"{_workspace_name(path)} was moved or deleted", error.strerror
        )
    return _unavailable(
        "STORAGE_FAILS", f"the storage of {_workspace_name(path)} fails", str(error)
    )


def _from_sqlite_error(path: Path, error: sqlite3.Error) -> HaiError:
    log.warning("the index of a workspace failed", path=str(path), detail=str(error))
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return disk_full_error()
    if code == sqlite3.SQLITE_BUSY:
        return _unavailable(
            "STORAGE_BUSY", f"another server still uses {_workspace_name(path)}", "ask again"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return _unavailable(
            "STORAGE_REFUSES", f"the server may not write {_workspace_name(path)}", str(error)
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return _unavailable(
            "STORAGE_LOST", f"{_workspace_name(path)} was moved or deleted", str(error)
        )
    return _unavailable(
        "STORAGE_FAILS", f"the index of {_workspace_name(path)} cannot be used", str(error)
    )


def disk_full_error() -> Exhausted:
    return Exhausted(
        "the storage of workspaces is full, except for the reserve of the database; "
        "what has arrived is kept for a day; push again when there is space",
        reason="DISK_FULL",
    )


def _unavailable(reason: str, problem: str, detail: str | None) -> Unavailable:
    return Unavailable(f"{problem}: {detail}; an operator must look at the storage", reason=reason)


def _workspace_name(path: Path) -> str:
    return f"workspace {path.parent.name}/{path.name}"
