"""Maps exceptions to messages and exit codes, for commands and for the daemon.

1 failure, 2 usage, 3 not found, 4 denied, 5 unreachable, 124 time-out.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from hai.client import errors
from hai_sync.workspace_dir import data_directory

_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.NotFound, 3),
    (errors.Denied, 4),
    (errors.Unauthenticated, 4),
    (errors.Unreachable, 5),
    (errors.TimedOut, 124),
    (TimeoutError, 124),
    (errors.Invalid, 2),
    (errors.UsageError, 2),
)


class Failure(NamedTuple):
    """What a command reports about an error: a message for people, a reason for programs, and the exit code."""

    message: str
    hint: str
    reason: str
    exit_code: int


def map_error(error: Exception) -> Failure:
    """Return what to report about an exception. Exceptions of click are handled elsewhere."""
    code = next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)
    return Failure(*_describe(errors.explain_error(error)), code)


def _describe(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, errors.HaiError):
        return error.message, error.hint, error.reason
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        prefix = f"{error.filename}: " if error.filename else ""
        return f"{prefix}{error.strerror or error}", "", "SYSTEM"
    if isinstance(error, sqlite3.OperationalError):
        hint = "no file is lost; correct this and run the command again"
        return f"workspace state in {data_directory()} is unreadable: {error}", hint, "SYSTEM"
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("hai"):
        hint = "install what syncing needs: pip install 'hai-platform[sync]'"
        return f"{error.name} is not installed", hint, "NOT_INSTALLED"
    if isinstance(error, TimeoutError):
        message = (
            str(error) or "it took longer than --sync_timeout; run the command again to resume"
        )
        return message, "", "TIMED_OUT"
    hint = "run it again with --debug and report what it prints"
    return f"internal error: {type(error).__name__}: {error}", hint, "INTERNAL"
