"""From an exception to a sentence and an exit code, as commands tell it, and a daemon whom they asked.

1 failure, 2 usage, 3 not found, 4 denied, 5 unreachable, 124 time-out.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from hai.client import errors
from hai_sync.workspace_dir import data_directory

_CODES: tuple[tuple[type[Exception], int], ...] = (
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
    """What happened, what to do, the same for programs, and how a command ends."""

    message: str
    hint: str
    reason: str
    exit_code: int


def failure_of(error: Exception) -> Failure:
    """Of any error but those of a command line."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), 1)
    return Failure(*_words(errors.explained(error)), code)


def _words(error: Exception) -> tuple[str, str, str]:
    if isinstance(error, errors.HaiError):
        return error.message, error.hint, error.reason
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", "", "SYSTEM"
    if isinstance(error, sqlite3.OperationalError):
        hint = "nothing is lost; see to that and do it again"
        return f"what is remembered in {data_directory()} cannot be used: {error}", hint, "SYSTEM"
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("hai"):
        hint = "what syncs comes with it: pip install 'hai-platform[sync]'"
        return f"{error.name} is not installed", hint, "NOT_INSTALLED"
    if isinstance(error, TimeoutError):
        words = str(error) or "it took longer than --sync_timeout; do it again to go on"
        return words, "", "TIMED_OUT"
    hint = "run it again with --debug and report what it prints"
    return f"internal error: {type(error).__name__}: {error}", hint, "INTERNAL"
