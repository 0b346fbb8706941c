"""Errors of the API server, with the Status bodies and messages of a real one.

The functions create an ApiError for each kind of error.
"""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.testing.kube.body import Body
from hai_backend.testing.kube.resources import Resource

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    502: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """An error response: HTTP code, machine-readable reason, message, and details."""

    def __init__(
        self, code: int, message: str, details: Body | None = None, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "") if reason is None else reason
        self.message = message
        self.details = details or {}

    @property
    def retry_after(self) -> int | None:
        seconds = self.details.get("retryAfterSeconds")
        return seconds if isinstance(seconds, int) else None

    def status(self) -> Body:
        """Return the Status body."""
        body: Body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body |= {"message": self.message, "reason": self.reason, "details": self.details}
        return {k: v for k, v in body.items() if v or k == "metadata"} | {"code": self.code}


@dataclass(frozen=True, slots=True)
class Cause:
    """One validation error of an object."""

    field: str
    reason: str
    message: str


def success(resource: Resource, name: str, uid: str = "", code: int = 0) -> Body:
    """Return the Status of a successful request that returns no object."""
    details = {"name": name, "group": resource.group, "kind": resource.plural, "uid": uid}
    body: Body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if code:
        return body | {"code": code}
    return body | {"details": {k: v for k, v in details.items() if v}}


def _details(resource: Resource, name: str) -> Body:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {k: v for k, v in details.items() if v}


def _qualified(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(resource: Resource, name: str) -> ApiError:
    message = f'{_qualified(resource)} "{name}" not found'
    return ApiError(404, message, _details(resource, name))


def unknown_path() -> ApiError:
    return ApiError(404, "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{_qualified(resource)} "{name}" already exists'
    return ApiError(409, message, _details(resource, name), "AlreadyExists")


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {_qualified(resource)} "{name}": {why}'
    return ApiError(409, message, _details(resource, name))


def invalid(resource: Resource, name: str, causes: list[Cause]) -> ApiError:
    """Return an error 422 with all causes."""
    rows = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    texts = [f"{c.field}: {c.message}" for c in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": rows}
    return ApiError(
        *(422, f'{resource.kind} "{name}" is invalid: {text}'),
        {k: v for k, v in details.items() if v},
    )


def forbidden(
    resource: Resource, name: str, why: str, causes: list[Body] | None = None
) -> ApiError:
    message = f'{_qualified(resource)} "{name}" is forbidden: {why}'
    details = _details(resource, name) | ({"causes": causes} if causes else {})
    return ApiError(403, message, details)


def expired(requested: int, oldest: int) -> ApiError:
    return ApiError(410, f"too old resource version: {requested} ({oldest})")


def expired_token() -> ApiError:
    message = (
        "The provided continue parameter is too old to display a consistent list result. "
        "You must start a new list without the continue parameter."
    )
    return ApiError(410, message)


def revision_too_large(requested: int, current: int) -> ApiError:
    """Return the error for a resourceVersion that the server has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return ApiError(504, message, {"causes": [cause], "retryAfterSeconds": 1})


def too_many(message: str, causes: list[Body] | None = None, seconds: int = 0) -> ApiError:
    details: Body = {"causes": causes} if causes else {}
    return ApiError(429, message, details | ({"retryAfterSeconds": seconds} if seconds else {}))
