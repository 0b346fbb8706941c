"""Describes calls for the audit, and stores audit rows.

A row names scalar fields of a request only. The content of a task spec never gets into a row, because the environment
variables in it may hold secrets.
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

AddRows = Callable[[Sequence[AuditRow]], Awaitable[None]]  # returns when the rows are durable

SYSTEM, UNKNOWN = "system", "unknown"
"""Actors that are not users: the server itself, and a caller that could not be identified."""
_MAX_CHARS = 500
_IDENTITIES = ("id", "task_id", "name", "subject", "user_group", "prefix", "node_port")
_NESTED = frozenset(
    (
        *("user", "quota", "share", "grant", "policy", "image", "registry", "rule"),
        *("port", "artifact", "dataset", "message", "workspace", "environment", "webhook"),
    )
)
_SECRET = frozenset({"password", "token", "lease_token", "url"})
_ZERO_MATTERS = frozenset({"priority", "nodes", "guaranteed"})  # 0 is the level LOW, or no nodes
_MAX_DESCRIPTION_CHARS = 4000
_DESCRIPTIONS: ContextVar[list[str] | None] = ContextVar("hai_audit_descriptions", default=None)


class Action(StrEnum):
    """Methods of rows that do not come from a call of the contract."""

    AUTHENTICATE = "Authenticate"
    BROWSER_LOGIN = "BrowserLogin"
    COLLECT_REVISIONS = "CollectRevisions"
    SERVER_BACKUP = "ServerBackup"
    SERVER_SWEEP = "ServerSweep"


async def store_row(add_rows: AddRows, row: AuditRow) -> None:
    """Store a row without the credentials of URLs. Log a row that cannot be stored."""
    row = replace(row, resource=redact(row.resource), what=redact(row.what))
    try:
        await add_rows([row])
    except HaiError as error:
        log.error("audit row not stored", why=str(error), **asdict(row))


def collect_descriptions() -> list[str]:
    """Return the list to which `describe_change` adds during the current call."""
    descriptions: list[str] = []
    _DESCRIPTIONS.set(descriptions)
    return descriptions


def describe_change(text: str) -> None:
    """Add a description of the current call, such as old and new values. The row has it instead of the request."""
    descriptions = _DESCRIPTIONS.get()
    if descriptions is not None:
        descriptions.append(text[:_MAX_DESCRIPTION_CHARS])


def resource_of(request: Message, response: Message | None) -> str:
    """Return the thing that a call is about: `12`, `node-3`, `alice`. Empty if neither message names one."""
    of_response = [] if response is None else [response, *_nested(response)]
    for message in (request, *_nested(request), *of_response):
        for name in _IDENTITIES:
            if value := getattr(message, name, None):
                return str(value)[:_MAX_CHARS]
    return ""


def describe_request(request: Message) -> str:
    """Return the scalar fields of a request: `id=12 hold=True`."""
    parts = list(_scalars(request))
    for nested in _nested(request):
        parts += _scalars(nested)
    if "spec" in request.DESCRIPTOR.fields_by_name:
        parts.append(f"name={getattr(request, 'spec').name!r}")  # noqa: B009
    return " ".join(parts)[:_MAX_CHARS]


def _scalars(message: Message) -> Iterator[str]:
    set_fields = {field.name for field, _ in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        scalar = field.message_type is None and field.name not in _SECRET
        zero_matters = field.name in _ZERO_MATTERS and not (field.is_repeated or field.has_presence)
        if scalar and (zero_matters or field.name in set_fields):
            yield f"{field.name}={_format_value(field, getattr(message, field.name))}"


def _format_value(field: Any, value: Any) -> str:
    if field.is_repeated:
        return str(list(value))
    members = field.enum_type.values_by_number if field.enum_type else {}
    if value not in members:
        return repr(value)
    return str(members[value].name.removeprefix(members[0].name.removesuffix("UNSPECIFIED")))


def _nested(message: Message) -> list[Message]:
    return [
        value
        for field, value in message.ListFields()
        if field.name in _NESTED and field.message_type is not None
    ]
