"""Error responses of the API server. There is one class for each way to handle an error.

ApiError
├── AlreadyExists   read the existing object
├── NotFound        the object does not exist
├── NameConflict    an object that is not ours has the name: report the error, and keep the object
├── Rejected        the request can never succeed: report the error
├── Conflict        a concurrent change: retry
├── Throttled       retry after `seconds`
└── Unavailable     retry a little later (a lost connection, a server error, a timeout)

`kube_cache.source.Expired` means that the version is too old: list the objects again.
"""

from __future__ import annotations

import json
from typing import Any

from hai_backend.kube_cache.source import Broken, Expired


class ApiError(Exception):
    """A request failed. `code` is the HTTP status; 0 if there was no response."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class AlreadyExists(ApiError):
    pass


class NotFound(ApiError):
    pass


class NameConflict(ApiError):
    pass


class Rejected(ApiError):
    pass


class Conflict(ApiError, Broken):
    pass


class Throttled(ApiError, Broken):
    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message, 429)
        self.seconds = seconds


class Unavailable(ApiError, Broken):
    pass


def error_from(code: int, body: bytes, retry_after: str = "") -> ApiError | Expired:
    """Return the error for a response. `retry_after` is the header of that name."""
    status = _status(body)
    message = str(status.get("message") or f"the API server answered {code}")
    details = status.get("details") or {}
    seconds = float(details.get("retryAfterSeconds") or _number(retry_after) or 1.0)
    match code:
        case 404:
            return NotFound(message, code)
        case 409 if status.get("reason") == "AlreadyExists":
            return AlreadyExists(message, code)
        case 409 if "UID in precondition" in message:
            return NotFound(message, code)  # another object has the name now
        case 409:
            return Conflict(message, code)
        case 410:
            return Expired(message)
        case 429:
            return Throttled(message, seconds)
        case 401 | 408:  # the next request may have a renewed token
            return Unavailable(message, code)
        case _ if code >= 500:
            return Unavailable(message, code)
    return Rejected(message, code)


def _status(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}  # a proxy answers in HTML
    return found if isinstance(found, dict) else {}


def _number(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0
