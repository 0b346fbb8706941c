"""From a gRPC status to the client's errors.

grpc_status cannot read a caught AioRpcError (it wants the call object), so the details are parsed
here out of the trailing metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc.aio import AioRpcError

from hai.client.connection.stream_call import is_broken
from hai.client.errors import (
    Conflict,
    Denied,
    HaiError,
    Invalid,
    LimitReached,
    NotFound,
    ServerError,
    TimedOut,
    Unauthenticated,
    Unreachable,
    Untrusted,
    Violation,
    explain_certificate,
)

_KINDS: Mapping[StatusCode, type[HaiError]] = {
    StatusCode.NOT_FOUND: NotFound,
    StatusCode.PERMISSION_DENIED: Denied,
    StatusCode.UNAUTHENTICATED: Unauthenticated,
    StatusCode.INVALID_ARGUMENT: Invalid,
    StatusCode.OUT_OF_RANGE: Invalid,
    StatusCode.FAILED_PRECONDITION: Conflict,
    StatusCode.ALREADY_EXISTS: Conflict,
    StatusCode.ABORTED: Conflict,
    StatusCode.RESOURCE_EXHAUSTED: LimitReached,
    StatusCode.UNAVAILABLE: Unreachable,
    StatusCode.CANCELLED: Unreachable,  # by a server that stops
    StatusCode.DEADLINE_EXCEEDED: TimedOut,
}

_HINTS: Mapping[str, str] = {
    "UNAUTHENTICATED": "check the token: `hai init` stores a new one, HAI_TOKEN overrides it",
    "TOKEN_EXPIRED": "ask for a new token and store it with `hai init`",
    "TOKEN_REVOKED": "ask for a new token and store it with `hai init`",
    "DENIED": "ask an administrator for the right, or use a token with a wider scope",
    "UNREACHABLE": "check the address and that the server runs (`hai up` starts one here)",
    "TIMED_OUT": "the server is slow or overloaded; try again",
    "UNIMPLEMENTED": "have the server upgraded, or use the client of its version: `hai version` tells both",
    "INTERNAL": "this is a fault of the server; its log says more",
}

_PERHAPS_TLS = "try again; a server with TLS needs `ca` in the profile (`hai init --ca FILE`)"

_NO_TOKEN = "`hai init --server HOST:PORT` stores one, HAI_TOKEN gives one"

_TOKEN_MESSAGES: Mapping[str, str] = {
    "UNAUTHENTICATED": "the server at {address} does not accept the token",
    "TOKEN_EXPIRED": "the token for the server at {address} has expired",
    "TOKEN_REVOKED": "the token for the server at {address} has been revoked",
}


def to_error(error: AioRpcError, address: str, *, token: bool = True) -> HaiError:
    """The same failure as an error of this package; `address` names the server in it, `token`: one was sent."""
    if error.code() is StatusCode.UNAUTHENTICATED and not token:
        return Unauthenticated(f"there is no token for the server at {address}", hint=_NO_TOKEN)
    info, violations = _details(error)
    wrong, way_out = explain_certificate(error.details() or "")
    if wrong and not info.reason:
        return Untrusted(f"the server at {address} {wrong}", hint=way_out)
    kind = Unreachable if is_broken(error) else _KINDS.get(error.code(), ServerError)
    reason = info.reason or _reason(error, kind)
    message = _message(error, kind, reason, address, from_server=bool(info.reason))
    hint = _PERHAPS_TLS if _hung_up(error) else _HINTS.get(reason, "")
    if kind is Invalid:
        return Invalid(message, violations, reason=reason, hint=hint)
    return kind(message, reason=reason, hint=hint)


def _reason(error: AioRpcError, kind: type[HaiError]) -> str:
    return "UNIMPLEMENTED" if error.code() is StatusCode.UNIMPLEMENTED else kind.default_reason


def _hung_up(error: AioRpcError) -> bool:
    """A server with TLS does so to who speaks plain text."""
    return (error.details() or "").endswith("Socket closed")


def _message(
    error: AioRpcError, kind: type[HaiError], reason: str, address: str, *, from_server: bool
) -> str:
    details = (error.details() or "").strip()
    if kind is Unreachable and not from_server:
        # Before the cause stand the layers of gRPC that passed it on.
        cause = "" if is_broken(error) else details.rpartition(": ")[2].rstrip("]")
        return f"cannot reach the server at {address}: {cause or 'the connection was lost'}"
    if kind is TimedOut and not from_server:
        return f"the server at {address} did not answer in time"
    if reason == "UNIMPLEMENTED":
        told = f" ({details})" if details else ""
        return (
            f"the server at {address} does not know this call{told}: it is older than this client"
        )
    if kind is Unauthenticated and reason in _TOKEN_MESSAGES:
        return _TOKEN_MESSAGES[reason].format(address=address)
    return details or f"the server at {address} answered {error.code().name}"


def _details(error: AioRpcError) -> tuple[ErrorInfo, tuple[Violation, ...]]:
    info, bad = ErrorInfo(), BadRequest()
    for detail in _status(error).details:
        if detail.Is(ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(BadRequest.DESCRIPTOR):
            detail.Unpack(bad)
    named = _named if info.reason == "UNKNOWN_FIELD" else str
    return info, tuple(Violation(named(v.field), v.description) for v in bad.field_violations)


def _named(field: str) -> str:
    """Of hai.v1.OptionsSpec.32, which is only a number to an older server, what it is to us."""
    message, _, number = field.rpartition(".")
    try:
        known = descriptor_pool.Default().FindMessageTypeByName(message)
        return f"{known.name}.{known.fields_by_number[int(number)].name}"
    except (KeyError, ValueError):
        return field


def _status(error: AioRpcError) -> Status:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                return Status.FromString(value)
            except DecodeError:  # a proxy in between may write what it likes
                break
    return Status()
