"""Who changed what, and with which result.

What changes a task stands in the task's timeline, durable before the answer, so its row may follow a moment later, many
at a time. Everything else (users, quotas, tokens, nodes, groups) is answered when its row is durable.

A row names the scalars of a request only; the insides of a task spec (environments may hold secrets) never get here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import structlog
from google.protobuf.message import Message

from hai_backend.domain.errors import HaiError
from hai_backend.store.base import AuditRow, Store

log = structlog.get_logger()

_GATHER_SECONDS = 0.1  # rows that come meanwhile share a commit
_WAITING = 10_000  # rows in memory before callers are made to wait
_CHARS = 500
_IDENTITIES = ("id", "name", "subject")
_NESTED = frozenset({"user", "quota"})


class AuditTrail:
    """Rows of all mutating calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: list[AuditRow] = []
        self._writer: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def add(self, row: AuditRow) -> None:
        """Return when the row is durable. Raises Unavailable."""
        await self._store.add_audit([row])

    async def add_soon(self, row: AuditRow) -> None:
        """Write a row within a fraction of a second; waits only when too many are waiting."""
        self._rows.append(row)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        if len(self._rows) > _WAITING:
            await asyncio.shield(self._writer)

    async def close(self) -> None:
        """Return when every row is written."""
        self._closing.set()
        if self._writer is not None:
            await self._writer

    async def _write(self) -> None:
        while self._rows:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _GATHER_SECONDS)
            rows, self._rows = self._rows, []
            try:
                await self._store.add_audit(rows)
            except HaiError as error:
                log.error("audit rows lost", rows=len(rows), first=str(rows[0]), why=str(error))


def resource(request: Message, response: Message | None) -> str:
    """The thing that a call is about: `12`, `node-3`, `alice`."""
    candidates = [request, *_nested(request), *([response] if response is not None else [])]
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
    for field, value in message.ListFields():
        if field.message_type is None:
            yield f"{field.name}={list(value) if field.is_repeated else value!r}"


def _nested(message: Message) -> list[Message]:
    return [
        value
        for field, value in message.ListFields()
        if field.name in _NESTED and field.message_type is not None
    ]
