"""Errors as the page gets them: `{reason, message, hint, violations}`, with a status that is not taken for Jupyter's.

A wrong *platform* token is not 401 or 403: the front end would take that for a Jupyter session that has ended.
"""

from __future__ import annotations

from typing import Any

from hai.client.errors import (
    Ambiguous,
    Conflict,
    Denied,
    HaiError,
    Invalid,
    LimitReached,
    NotFound,
    TimedOut,
    Unreachable,
    UsageError,
    Violation,
)

_STATUS: tuple[tuple[type[HaiError], int], ...] = (
    (Invalid, 400),
    (UsageError, 400),
    (NotFound, 404),
    (Denied, 409),
    (Conflict, 409),
    (Ambiguous, 409),
    (LimitReached, 429),
    (Unreachable, 503),
    (TimedOut, 504),
)
_OTHERS = 502  # the platform does not accept our token, or has a fault


def status(error: HaiError) -> int:
    """The HTTP status for an error."""
    return next((code for kind, code in _STATUS if isinstance(error, kind)), _OTHERS)


def body(error: HaiError) -> dict[str, Any]:
    """The error as JSON."""
    found = error.violations if isinstance(error, Invalid) else ()
    return {
        "reason": error.reason,
        "message": error.message,
        "hint": error.hint,
        "violations": [
            {"field": v.field, "message": v.message, "line": v.line, "column": v.column}
            for v in found
        ],
    }


def invalid(*found: tuple[str, str]) -> Invalid:
    """What is wrong with a request from the page: pairs of field and sentence."""
    violations = tuple(Violation(field, message) for field, message in found)
    return Invalid("; ".join(map(str, violations)), violations)
