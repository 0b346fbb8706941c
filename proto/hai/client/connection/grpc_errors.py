"""Converts a gRPC status to an error of the client.

The package grpc_status cannot read a caught AioRpcError, since it needs the call object. The details are therefore
parsed here from the trailing metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc.aio import AioRpcError

from hai.client.connection.stream_call import is_write_failure
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

_ERROR_TYPES: Mapping[StatusCode, type[HaiError]] = {
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
    StatusCode.CANCELLED: Unreachable,  # sent by a server that is shutting down
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
    """Return the failure as an error of this package.

    `address` names the server in the message. `token` says whether the call sent a token.
    """
    if error.code() is StatusCode.UNAUTHENTICATED and not token:
        return Unauthenticated(f"there is no token for the server at {address}", hint=_NO_TOKEN)
    info, violations = _parse_details(error)
    fault, fault_hint = explain_certificate(error.details() or "")
    if fault and not info.reason:
        return Untrusted(f"the server at {address} {fault}", hint=fault_hint)
    kind = Unreachable if is_write_failure(error) else _ERROR_TYPES.get(error.code(), ServerError)
    reason = info.reason or _reason(error, kind)
    message = _message(error, kind, reason, address, from_server=bool(info.reason))
    hint = _PERHAPS_TLS if _is_hang_up(error) else _HINTS.get(reason, "")
    if kind is Invalid:
        return Invalid(message, violations, reason=reason, hint=hint)
    return kind(message, reason=reason, hint=hint)


def _reason(error: AioRpcError, kind: type[HaiError]) -> str:
    return "UNIMPLEMENTED" if error.code() is StatusCode.UNIMPLEMENTED else kind.default_reason


def _is_hang_up(error: AioRpcError) -> bool:
    """Return whether the server closed the connection at once, as one with TLS does when a client sends plain text."""
    return (error.details() or "").endswith("Socket closed")


def _message(
    error: AioRpcError, kind: type[HaiError], reason: str, address: str, *, from_server: bool
) -> str:
    """Return the message of the error. The server's own text is kept where it has one."""
    details = (error.details() or "").strip()
    if kind is Unreachable and not from_server:
        # gRPC puts the names of its layers before the cause
        cause = "" if is_write_failure(error) else details.rpartition(": ")[2].rstrip("]")
        return f"cannot reach the server at {address}: {cause or 'the connection was lost'}"
    if kind is TimedOut and not from_server:
        return f"the server at {address} did not answer in time"
    if reason == "UNIMPLEMENTED":
        server_text = f" ({details})" if details else ""
        return f"the server at {address} does not know this call{server_text}: it is older than this client"
    if kind is Unauthenticated and reason in _TOKEN_MESSAGES:
        return _TOKEN_MESSAGES[reason].format(address=address)
    return details or f"the server at {address} answered {error.code().name}"


def _parse_details(error: AioRpcError) -> tuple[ErrorInfo, tuple[Violation, ...]]:
    """Return the ErrorInfo and the violations in the details of a status."""
    info, bad = ErrorInfo(), BadRequest()
    for detail in _parse_status(error).details:
        if detail.Is(ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(BadRequest.DESCRIPTOR):
            detail.Unpack(bad)
    to_field_name = _readable_field_name if info.reason == "UNKNOWN_FIELD" else str
    return info, tuple(
        Violation(to_field_name(v.field), v.description) for v in bad.field_violations
    )


def _readable_field_name(field: str) -> str:
    """Return the name of a field that an older server knows only by number, such as hai.v1.OptionsSpec.32."""
    message, _, number = field.rpartition(".")
    try:
        message_type = descriptor_pool.Default().FindMessageTypeByName(message)
        return f"{message_type.name}.{message_type.fields_by_number[int(number)].name}"
    except (KeyError, ValueError):
        return field


def _parse_status(error: AioRpcError) -> Status:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                return Status.FromString(value)
            except DecodeError:  # a proxy may have written other data
                break
    return Status()
