"""Converts errors of the domain to gRPC statuses. No other module does so.

Every status carries google.rpc details: ErrorInfo (reason, domain "hai.dev"), BadRequest with every violation, and
RetryInfo where waiting helps. An unexpected error becomes INTERNAL with an incident id. The log has its traceback; the
caller gets the id only.
"""

from __future__ import annotations

import secrets
import traceback
from collections.abc import Iterator

import grpc
import structlog
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from hai.redaction import redact
from hai_backend.domain import errors

log = structlog.get_logger()

DOMAIN = "hai.dev"
# Statuses travel in HTTP/2 trailers with base64-encoded details. Clients accept trailers of 8 KiB by default.
_MESSAGE_BYTES = 1024
_TRACE_CHARS = 16_384  # An error may quote a request of megabytes
_VIOLATION_BYTES = 3072

_CODES: tuple[tuple[type[errors.HaiError], grpc.StatusCode], ...] = (
    (errors.NotFound, grpc.StatusCode.NOT_FOUND),
    (errors.Denied, grpc.StatusCode.PERMISSION_DENIED),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Invalid, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.Conflict, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.Exhausted, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
)
_CODES_BY_REASON = {
    "NAME_TAKEN": grpc.StatusCode.ALREADY_EXISTS,
    "REVISION_CHANGED": grpc.StatusCode.ABORTED,  # the client reads the new state and repeats the call
    "CONTENT_CHANGED": grpc.StatusCode.ABORTED,
}


class Expired(errors.HaiError):
    """A call exceeded the time limit of the server."""

    reason = "DEADLINE_EXCEEDED"


def code_of(error: BaseException) -> grpc.StatusCode:
    """Return the canonical code of an error."""
    if isinstance(error, Expired):
        return grpc.StatusCode.DEADLINE_EXCEEDED
    if isinstance(error, errors.Conflict) and error.reason in _CODES_BY_REASON:
        return _CODES_BY_REASON[error.reason]
    return next(
        (code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL
    )


def status_of(error: BaseException, method: str) -> status_pb2.Status:
    """Return the status that the caller of `method` gets. Logs an unexpected error."""
    code = code_of(error)
    if code is grpc.StatusCode.INTERNAL or not isinstance(error, errors.HaiError):
        return _internal_status(error, method)
    status = status_pb2.Status(
        code=code.value[0], message=_truncate(redact(str(error)), _MESSAGE_BYTES)
    )
    status.details.extend(_pack(detail) for detail in _details(error))
    return status


def _internal_status(error: BaseException, method: str) -> status_pb2.Status:
    incident = secrets.token_hex(4)
    # No exc_info: some log renderers print local variables, which may hold secrets
    trace = "".join(traceback.format_exception(error))
    log.error("call failed", method=method, incident=incident, trace=trace[-_TRACE_CHARS:])
    message = f"internal error of the server (incident {incident}); ask an operator to look it up in the server log"
    info = error_details_pb2.ErrorInfo(
        reason="INTERNAL", domain=DOMAIN, metadata={"incident": incident}
    )
    return status_pb2.Status(code=code_pb2.INTERNAL, message=message, details=[_pack(info)])


def _details(error: errors.HaiError) -> Iterator[Message]:
    yield error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    if isinstance(error, errors.Invalid):
        yield _bad_request(error.violations)
    if isinstance(error, errors.Exhausted | errors.Unavailable) and error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(error.retry_after * 1e9))
        yield retry


def _bad_request(violations: tuple[errors.Violation, ...]) -> error_details_pb2.BadRequest:
    """Return as many violations as fit in a trailer, and the number of the others."""
    request, free_bytes = error_details_pb2.BadRequest(), _VIOLATION_BYTES
    for count, violation in enumerate(violations):
        field, message = _truncate(violation.field, 200), _truncate(redact(violation.message), 400)
        free_bytes -= len(field.encode()) + len(message.encode()) + 8
        if free_bytes < 0:
            request.field_violations.add(
                description=f"and {len(violations) - count} more violations"
            )
            break
        request.field_violations.add(field=field, description=message)
    return request


def _pack(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _truncate(text: str, limit: int) -> str:
    data = text.encode(errors="replace")
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "…"
