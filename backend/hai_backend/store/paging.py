"""Page tokens: where the previous page ended, tied to the query that made it.

A token holds the position (value of the ordering column, id), not a row count, so rows that come and go elsewhere
neither shift nor repeat a page. It is not signed: a made-up one only moves a caller within what his own filter shows.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import fields
from typing import Any, NamedTuple

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
    return pack([_digest(query), *position_of(last, query.order_by)])


def decode(query: TaskQuery) -> Position | None:
    """Where the page begins, None for the first one. Raises Invalid for a token of another query."""
    if not query.page_token:
        return None
    match unpack(query.page_token):
        case [digest, value, task_id]:
            if digest != _digest(query):
                raise wrong("belongs to a query with another filter or order")
            right = type(task_id) is int and type(value) in _TYPES[query.order_by]
            if right and _storable(task_id) and _storable(value):
                return Position(value, task_id)
    raise not_ours()


def pack(parts: list[str | int | float]) -> str:
    """A token that says these."""
    text = json.dumps(parts, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def unpack(token: str) -> Any:
    """What a token says. Raises Invalid for what is none."""
    try:
        padded = token + "=" * (-len(token) % 4)
        said = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        json.dumps(said, ensure_ascii=False).encode()  # half a character is no text to a database
    except (ValueError, RecursionError):
        raise not_ours() from None
    return said


def _storable(value: str | int | float) -> bool:
    """Whether every database can compare with it."""
    if isinstance(value, str):
        return "\0" not in value
    return -(2**63) <= value < 2**63


def not_ours() -> Invalid:
    """The refusal of a token that was made up."""
    return wrong("is not one that this server gave")


def wrong(what: str) -> Invalid:
    """The refusal of a token."""
    message = f"the page token {what}; ask for the first page again"
    return Invalid((Violation("page_token", message),))


def _digest(query: TaskQuery) -> str:
    parts = [query.order_by, query.descending]
    for field in fields(query.filter):
        value = getattr(query.filter, field.name)
        parts.append(sorted(map(str, value)) if isinstance(value, frozenset) else value)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
