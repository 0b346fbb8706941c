"""The exceptions of the client. Loads no grpc.

HaiError
├── NotFound          the object does not exist, or is not visible to the caller
├── Denied            the caller does not have the required right
├── Unauthenticated   no token, or a wrong, expired or revoked one
├── Invalid           the request breaks rules; carries every violation
├── Conflict          the object is not in a state for the call, or the name is taken
├── LimitReached      the request would exceed a quota or limit
├── Unreachable       no server answers, or it is not available now
│   ├── Untrusted     the certificate of the server is not valid
│   └── Closed        this client was closed
├── TimedOut          no answer arrived within the deadline, or a wait reached its time limit
├── ServerError       a fault in the server, or a server of another version
├── NotGenerated      the .proto files of this checkout are newer than the generated modules
├── Ambiguous         several tasks have the given name; carries the candidates
└── UsageError        the caller's own files or arguments are at fault; nothing was sent

`message` is one sentence: what happened, to which object. `hint` says what to do. `reason` is
stable and machine-readable: the ErrorInfo reason of the server if there is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

_OUT_OF_RANGE = re.compile(r"Value out of range: (-?\d+)")


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. `field` is a path such as services[0].port. Line and column count from 1; 0 means unknown."""

    field: str
    message: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        position = f" (line {self.line}, column {self.column})" if self.line else ""
        return (
            f"{self.field}: {self.message}{position}" if self.field else f"{self.message}{position}"
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several tasks that have the given name."""

    id: int
    name: str
    user: str
    state: str


class HaiError(Exception):
    """The base class of all errors of the client."""

    default_reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, *, reason: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.hint = hint


class NotFound(HaiError):
    default_reason = "NOT_FOUND"


class Denied(HaiError):
    default_reason = "DENIED"


class Unauthenticated(HaiError):
    """No token, or a wrong (UNAUTHENTICATED), expired (TOKEN_EXPIRED) or revoked one (TOKEN_REVOKED)."""

    default_reason = "UNAUTHENTICATED"


class Invalid(HaiError):
    """The request breaks rules. `violations` holds one entry for each of them."""

    default_reason = "INVALID"

    def __init__(
        self,
        message: str,
        violations: tuple[Violation, ...] = (),
        *,
        reason: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, reason=reason, hint=hint)
        self.violations = violations


class Conflict(HaiError):
    default_reason = "CONFLICT"


class LimitReached(HaiError):
    default_reason = "LIMIT_REACHED"


class Unreachable(HaiError):
    default_reason = "UNREACHABLE"


class Untrusted(Unreachable):
    """The certificate of the server is not valid. Another attempt does not help."""

    default_reason = "UNTRUSTED"


class Closed(Unreachable):
    """This client was closed, perhaps during the call. Only a new client can reach the server."""


class TimedOut(HaiError):
    default_reason = "TIMED_OUT"


class ServerError(HaiError):
    default_reason = "INTERNAL"


class Ambiguous(HaiError):
    """Several tasks have the given name. `candidates` lists them."""

    default_reason = "AMBIGUOUS"

    def __init__(self, message: str, candidates: tuple[Candidate, ...], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.candidates = candidates


class UsageError(HaiError):
    default_reason = "USAGE"


class NotGenerated(HaiError):
    """A generated module is missing because the checkout is newer than its set-up."""

    default_reason = "NOT_GENERATED"


def explain_error(error: Exception) -> Exception:
    """Return a HaiError with a plain message for an obscure error of Python or protobuf, and other errors unchanged."""
    if isinstance(error, OverflowError):
        return UsageError(f"a number is too large: {error}")
    if isinstance(error, UnicodeEncodeError):
        return UsageError(f"not text in UTF-8: {error}")
    if isinstance(error, ValueError) and (found := _OUT_OF_RANGE.fullmatch(str(error))):
        size = "small" if found[1].startswith("-") else "large"
        return UsageError(f"a number is too {size}: {found[1]}")
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    if not name.startswith("hai.v1."):
        return error
    return NotGenerated(
        f"{name} was never generated: the .proto files here are newer than the set-up",
        hint="bash scripts/setup, again after each git pull",
    )


_CA_HINT = "`ca` in the profile must name the authority of the server (`hai init --ca FILE`); ask its operator for it"
_IMPOSTOR = "or another machine answers in its place"

_CERTIFICATE_FAULTS = (
    ("certificate has expired", "has a certificate that has expired", "the server's operator must renew it"),
    ("certificate is not yet valid", "has a certificate that is not valid yet", "compare the clocks of both machines"),
    ("Hostname Verification Check failed", "has a certificate for other names",
     f"use a name that stands in it, {_IMPOSTOR}"),
    ("CERTIFICATE_VERIFY_FAILED", "has a certificate of an authority that is not trusted here",
     f"{_CA_HINT}, {_IMPOSTOR}"),
    ("WRONG_VERSION_NUMBER", "does not speak TLS", "remove `ca` from the profile if that is meant to be so"),
    ("Failed to create security handshaker", "cannot be checked: the file of its authority holds no certificate",
     _CA_HINT),
)  # fmt: skip


def explain_certificate(details: str) -> tuple[str, str]:
    """Return what is wrong with the server's certificate, and what to do.

    Both texts are empty if the certificate is not at fault. `details` is the text of a gRPC status: gRPC passes on
    the messages of BoringSSL, with texts of its own around them.
    """
    found = ((fault, hint) for message, fault, hint in _CERTIFICATE_FAULTS if message in details)
    return next(found, ("", ""))
