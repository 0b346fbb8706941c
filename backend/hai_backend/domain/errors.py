"""Errors that a caller can act on. api/server/errors.py turns each into a gRPC status.

HaiError
├── NotFound             no such thing, or not visible to the caller
├── Denied               the caller lacks a right
├── Unauthenticated      no token, or a wrong, expired or revoked one
├── Invalid              the request breaks rules; carries every violation
├── Conflict             the thing is not in a state for that, or the name is taken
├── Exhausted            a limit is reached
├── Unavailable          the store or the cluster cannot be reached now
│   ├── NoLeader         no server leads now
│   └── Deposed          this server no longer leads; nothing was written
└── InvalidTransition    a bug: there is no rule for an event in this state

A message says what happened, to which thing, and what to do. `reason` is stable and machine-readable (AIP-193).
"""

from __future__ import annotations

from dataclasses import dataclass


class HaiError(Exception):
    """Root of the tree."""

    reason = "INTERNAL"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class NotFound(HaiError):
    reason = "NOT_FOUND"


class Denied(HaiError):
    reason = "DENIED"


class Unauthenticated(HaiError):
    reason = "UNAUTHENTICATED"


class Conflict(HaiError):
    reason = "CONFLICT"


class Exhausted(HaiError):
    reason = "LIMIT_REACHED"

    def __init__(
        self, message: str, *, reason: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, reason=reason)
        self.retry_after = retry_after  # seconds; None if waiting does not help


class Unavailable(HaiError):
    reason = "UNAVAILABLE"
    retry_after: float | None = None  # seconds; None if it is not known


class NoLeader(Unavailable):
    reason = "NO_LEADER"
    retry_after = 1.0


class Deposed(Unavailable):
    reason = "DEPOSED"
    retry_after = 1.0


class InvalidTransition(HaiError):
    reason = "INVALID_TRANSITION"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: the path of the field (spec.entrypoint, services[0].port; empty for the request) and a message."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class Invalid(HaiError):
    reason = "INVALID"

    def __init__(self, violations: tuple[Violation, ...], *, reason: str | None = None) -> None:
        super().__init__("; ".join(map(str, violations)), reason=reason)
        self.violations = violations
