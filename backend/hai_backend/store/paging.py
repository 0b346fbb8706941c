"""Page tokens: where the previous page ended, tied to the query that made it.

A token holds the position (value of the ordering column, id), not a row count, so rows that come and go elsewhere
neither shift nor repeat a page. It is not signed: a made-up one only moves a caller within what his own filter shows.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import fields
from typing import NamedTuple

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.task import Task
from hai_backend.store.base import ORDERS, TaskQuery

_TYPES: dict[str, tuple[type, ...]] = {
    "id": (int,),
    "create_time": (float, int),
    "priority": (int,),
    "name": (str,),
    "state": (str,),
}


class Position(NamedTuple):
    """The last task of a page in the query's order; compares like the order does."""

    value: str | int | float
    id: int


def check(query: TaskQuery) -> None:
    """Raises Invalid for an unknown order or an empty page."""
    violations = []
    if query.order_by not in ORDERS:
        message = f"{query.order_by!r} is not one of {', '.join(ORDERS)}"
        violations.append(Violation("order_by", message))
    if query.page_size < 1:
        violations.append(Violation("page_size", f"{query.page_size} is less than 1"))
    if violations:
        raise Invalid(tuple(violations))


def position_of(task: Task, order_by: str) -> Position:
    """Where a task stands in an order."""
    values: dict[str, str | int | float] = {
        "id": task.id,
        "create_time": task.created_at,
        "priority": int(task.priority),
        "name": task.spec.name,
        "state": task.state.value,
    }
    return Position(values[order_by], task.id)


def encode(query: TaskQuery, last: Task) -> str:
    """The token of the page after the one that ends with `last`."""
    position = position_of(last, query.order_by)
    text = json.dumps([_digest(query), *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(query: TaskQuery) -> Position | None:
    """Where the page begins, None for the first one. Raises Invalid for a token of another query."""
    if not query.page_token:
        return None
    try:
        padded = query.page_token + "=" * (-len(query.page_token) % 4)
        digest, value, task_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        str(value).encode()  # half a character is no text to a database
    except (ValueError, TypeError, RecursionError):
        raise _wrong("is not one that this server gave") from None
    if digest != _digest(query):
        raise _wrong("belongs to a query with another filter or order")
    if type(task_id) is not int or type(value) not in _TYPES[query.order_by]:
        raise _wrong("is not one that this server gave")
    if not _storable(task_id) or not _storable(value):
        raise _wrong("is not one that this server gave")
    return Position(value, task_id)


def _storable(value: str | int | float) -> bool:
    """Whether every database can compare with it."""
    if isinstance(value, str):
        return "\0" not in value
    return -(2**63) <= value < 2**63


def _wrong(what: str) -> Invalid:
    message = f"the page token {what}; ask for the first page again"
    return Invalid((Violation("page_token", message),))


def _digest(query: TaskQuery) -> str:
    parts = [query.order_by, query.descending]
    for field in fields(query.filter):
        value = getattr(query.filter, field.name)
        parts.append(sorted(map(str, value)) if isinstance(value, frozenset) else value)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
