"""Domain errors become statuses here, and nowhere else.

Every status carries google.rpc details: ErrorInfo (reason, domain "hai.dev"), BadRequest with every violation, and
RetryInfo where waiting helps. What we did not expect becomes INTERNAL with an incident id: the log has the trace, the
caller has not.
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
# Statuses travel in HTTP/2 trailers, of which clients take 8 KiB by default, and details come base64-encoded.
_MESSAGE_BYTES = 1024
_TRACE_CHARS = 16_384  # of an incident; a request may be megabytes, and in its error
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
    "REVISION_CHANGED": grpc.StatusCode.ABORTED,  # look again, then repeat
    "CONTENT_CHANGED": grpc.StatusCode.ABORTED,
}


class Expired(errors.HaiError):
    """A call took longer than the server lets one take."""

    reason = "DEADLINE_EXCEEDED"


def code_of(error: BaseException) -> grpc.StatusCode:
    """The canonical code of an error."""
    if isinstance(error, Expired):
        return grpc.StatusCode.DEADLINE_EXCEEDED
    if isinstance(error, errors.Conflict) and error.reason in _CODES_BY_REASON:
        return _CODES_BY_REASON[error.reason]
    return next(
        (code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL
    )


def status_of(error: BaseException, method: str) -> status_pb2.Status:
    """The whole answer; logs what we did not expect."""
    code = code_of(error)
    if code is grpc.StatusCode.INTERNAL or not isinstance(error, errors.HaiError):
        return _incident(error, method)
    status = status_pb2.Status(code=code.value[0], message=_cut(redact(str(error)), _MESSAGE_BYTES))
    status.details.extend(_packed(detail) for detail in _details(error))
    return status


def _incident(error: BaseException, method: str) -> status_pb2.Status:
    incident = secrets.token_hex(4)
    # No exc_info: some renderers print locals, hence secrets
    trace = "".join(traceback.format_exception(error))
    log.error("call failed", method=method, incident=incident, trace=trace[-_TRACE_CHARS:])
    message = f"the server made an error (incident {incident}); its log tells more, an operator can read it"
    info = error_details_pb2.ErrorInfo(
        reason="INTERNAL", domain=DOMAIN, metadata={"incident": incident}
    )
    return status_pb2.Status(code=code_pb2.INTERNAL, message=message, details=[_packed(info)])


def _details(error: errors.HaiError) -> Iterator[Message]:
    yield error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    if isinstance(error, errors.Invalid):
        yield _bad_request(error.violations)
    if isinstance(error, errors.Exhausted | errors.Unavailable) and error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(error.retry_after * 1e9))
        yield retry


def _bad_request(violations: tuple[errors.Violation, ...]) -> error_details_pb2.BadRequest:
    """All violations, or as many as a trailer holds and how many more there are."""
    request, room = error_details_pb2.BadRequest(), _VIOLATION_BYTES
    for done, violation in enumerate(violations):
        field, message = _cut(violation.field, 200), _cut(redact(violation.message), 400)
        room -= len(field.encode()) + len(message.encode()) + 8
        if room < 0:
            request.field_violations.add(
                description=f"and {len(violations) - done} more violations"
            )
            break
        request.field_violations.add(field=field, description=message)
    return request


def _packed(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _cut(text: str, limit: int) -> str:
    data = text.encode(errors="replace")
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "…"
