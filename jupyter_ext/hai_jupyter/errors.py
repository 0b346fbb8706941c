"""Errors as the page gets them: `{reason, message, hint, violations}` with an HTTP status.

A token that the *platform* does not accept is not 401 or 403, which the front end takes for the end of the Jupyter
session.
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
_DEFAULT_STATUS = 502  # the platform does not accept the token, or has a fault


def status(error: HaiError) -> int:
    """Return the HTTP status for an error."""
    return next((code for kind, code in _STATUS if isinstance(error, kind)), _DEFAULT_STATUS)


def body(error: HaiError) -> dict[str, Any]:
    """Return the error as a JSON object."""
    violations = error.violations if isinstance(error, Invalid) else ()
    return {
        "reason": error.reason,
        "message": error.message,
        "hint": error.hint,
        "violations": [
            {"field": v.field, "message": v.message, "line": v.line, "column": v.column}
            for v in violations
        ],
    }


def invalid(*faults: tuple[str, str]) -> Invalid:
    """Return the error for faults of a request, given as pairs of field and message."""
    violations = tuple(Violation(field, message) for field, message in faults)
    return Invalid("; ".join(map(str, violations)), violations)
