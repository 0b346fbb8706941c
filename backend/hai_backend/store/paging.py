"""Page tokens. A token names the last row of a page and the query that the page belongs to.

A token contains a position (the value of the ordering column and the id) and no row count. Rows that are added or
deleted between two pages therefore neither shift nor repeat the following page. Tokens are not signed: a forged
token only requests another page of the rows that the caller may see.
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
    """The position of a task in a sort order. A task that comes later in ascending order has a larger position."""

    value: str | int | float
    id: int


def check_query(query: TaskQuery) -> None:
    """Raise Invalid for an unknown order or a page size below 1."""
    violations = []
    if query.order_by not in ORDERS:
        message = f"{query.order_by!r} is not one of {', '.join(ORDERS)}"
        violations.append(Violation("order_by", message))
    if query.page_size < 1:
        violations.append(Violation("page_size", f"{query.page_size} is less than 1"))
    if violations:
        raise Invalid(tuple(violations))


def position_of(task: Task, order_by: str) -> Position:
    """Return the position of a task in an order."""
    values: dict[str, str | int | float] = {
        "id": task.id,
        "create_time": task.created_at,
        "priority": int(task.priority),
        "name": task.spec.name,
        "state": task.state.value,
    }
    return Position(values[order_by], task.id)


def encode_token(query: TaskQuery, last: Task) -> str:
    """Return the token of the page that follows the task `last`."""
    return pack([_digest(query), *position_of(last, query.order_by)])


def decode_token(query: TaskQuery) -> Position | None:
    """Return the position after which the page begins, or None for the first page.

    Raises Invalid for a token of another query.
    """
    if not query.page_token:
        return None
    match unpack(query.page_token):
        case [digest, value, task_id]:
            if digest != _digest(query):
                raise invalid_token("belongs to a query with another filter or order")
            well_typed = type(task_id) is int and type(value) in _TYPES[query.order_by]
            if well_typed and _is_comparable(task_id) and _is_comparable(value):
                return Position(value, task_id)
    raise forged_token()


def pack(parts: list[str | int | float]) -> str:
    """Encode values as a token."""
    text = json.dumps(parts, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def unpack(token: str) -> Any:
    """Decode the values of a token. Raises Invalid for a text that is not a token."""
    try:
        padded = token + "=" * (-len(token) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        json.dumps(values, ensure_ascii=False).encode()  # raises ValueError for unpaired surrogates
    except (ValueError, RecursionError):
        raise forged_token() from None
    return values


def _is_comparable(value: str | int | float) -> bool:
    """Return whether every database can compare a column with the value."""
    if isinstance(value, str):
        return "\0" not in value
    return -(2**63) <= value < 2**63


def forged_token() -> Invalid:
    """Return the error for a token that this server did not create."""
    return invalid_token("is not one that this server gave")


def invalid_token(problem: str) -> Invalid:
    """Return the error for a token that cannot be used."""
    message = f"the page token {problem}; ask for the first page again"
    return Invalid((Violation("page_token", message),))


def _digest(query: TaskQuery) -> str:
    parts = [query.order_by, query.descending]
    for field in fields(query.filter):
        value = getattr(query.filter, field.name)
        parts.append(sorted(map(str, value)) if isinstance(value, frozenset) else value)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
