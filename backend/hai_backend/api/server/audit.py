"""Who changed what, and with which result: what a row says of a call.

It names the scalars of a request only; the insides of a task spec (environments may hold secrets) never get here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any

import structlog
from google.protobuf.message import Message

from hai.redaction import redact
from hai_backend.domain.errors import HaiError
from hai_backend.store.base import AuditRow

log = structlog.get_logger()

Record = Callable[[Sequence[AuditRow]], Awaitable[None]]  # returns when the rows are durable

SYSTEM, UNKNOWN = "system", "unknown"
"""Actors that are no users: the server by itself, and whoever could not be identified."""
_CHARS = 500
_IDENTITIES = ("id", "task_id", "name", "subject", "user_group", "prefix", "node_port")
_NESTED = frozenset(
    (
        *("user", "quota", "share", "grant", "policy", "image", "registry", "rule"),
        *("port", "artifact", "dataset", "message", "workspace", "environment", "webhook"),
    )
)
_SECRET = frozenset({"password", "token", "lease_token", "url"})
_ZERO_SAYS = frozenset({"priority", "nodes", "guaranteed"})  # LOW; none at all
_TOLD_CHARS = 4000
_TOLD: ContextVar[list[str] | None] = ContextVar("hai_audit_told", default=None)


class Action(StrEnum):
    """Methods of rows that no call of the contract has left."""

    AUTHENTICATE = "Authenticate"
    BROWSER_LOGIN = "BrowserLogin"
    COLLECT_REVISIONS = "CollectRevisions"
    SERVER_BACKUP = "ServerBackup"
    SERVER_SWEEP = "ServerSweep"


async def store(record: Record, row: AuditRow) -> None:
    """Record what has happened, without credentials of URLs. A row that cannot be stored is logged."""
    row = replace(row, resource=redact(row.resource), what=redact(row.what))
    try:
        await record([row])
    except HaiError as error:
        log.error("audit row not stored", why=str(error), **asdict(row))


def listen() -> list[str]:
    """From here on, what this call tells of itself is kept in this list."""
    told: list[str] = []
    _TOLD.set(told)
    return told


def tell(text: str) -> None:
    """What a change really was, old values and new: a row says that instead of the request."""
    told = _TOLD.get()
    if told is not None:
        told.append(text[:_TOLD_CHARS])


def resource(request: Message, response: Message | None) -> str:
    """The thing that a call is about: `12`, `node-3`, `alice`."""
    answer = [] if response is None else [response, *_nested(response)]
    candidates = [request, *_nested(request), *answer]
    for message in candidates:
        for name in _IDENTITIES:
            if value := getattr(message, name, None):
                return str(value)[:_CHARS]
    return ""


def what(request: Message) -> str:
    """The scalars of a request: `id=12 hold=True`."""
    parts = list(_scalars(request))
    for inner in _nested(request):
        parts += _scalars(inner)
    if "spec" in request.DESCRIPTOR.fields_by_name:
        parts.append(f"name={getattr(request, 'spec').name!r}")  # noqa: B009
    return " ".join(parts)[:_CHARS]


def _scalars(message: Message) -> Iterator[str]:
    said = {field.name for field, _ in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        plain = field.message_type is None and field.name not in _SECRET
        zero = field.name in _ZERO_SAYS and not (field.is_repeated or field.has_presence)
        if plain and (zero or field.name in said):
            yield f"{field.name}={_written(field, getattr(message, field.name))}"


def _written(field: Any, value: Any) -> str:
    if field.is_repeated:
        return str(list(value))
    known = field.enum_type.values_by_number if field.enum_type else {}
    if value not in known:
        return repr(value)
    return str(known[value].name.removeprefix(known[0].name.removesuffix("UNSPECIFIED")))


def _nested(message: Message) -> list[Message]:
    return [
        value
        for field, value in message.ListFields()
        if field.name in _NESTED and field.message_type is not None
    ]
