"""Reads audited calls page by page, newest first.

A page token contains the number of the last row of a page. Numbers only increase, so new rows do not move later pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace

from sqlalchemy import ColumnElement, Connection, select

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.store import paging
from hai_backend.store.base import AuditPage, AuditQuery, AuditRow
from hai_backend.store.sql import convert_admin
from hai_backend.store.tables.accounts import AUDIT

_OK = "OK"
_TEXT_TERMS = ("actor", "method", "resource", "code")


def read_page(connection: Connection, query: AuditQuery) -> AuditPage:
    """Read one page, and one more row to find out whether another page follows."""
    newest = select(AUDIT).where(*_conditions(query)).order_by(AUDIT.c.id.desc())
    rows = connection.execute(newest.limit(query.page_size + 1)).all()
    return _make_page(query, [(row[0], convert_admin.audit_from_row(row)) for row in rows])


def read_page_in_memory(rows: Sequence[AuditRow], query: AuditQuery) -> AuditPage:
    """Read one page of a list that has the oldest row first. The first row has number 1."""
    last = _last_number_of_previous_page(query)
    newest = len(rows) if last is None else min(len(rows), max(0, last - 1))
    found = []
    for number in range(newest, 0, -1):
        if _matches(rows[number - 1], query):
            found.append((number, rows[number - 1]))
        if len(found) > query.page_size:
            break
    return _make_page(query, found)


def _make_page(query: AuditQuery, found: Sequence[tuple[int, AuditRow]]) -> AuditPage:
    on_page = found[: query.page_size]
    has_next = len(found) > len(on_page)
    token = paging.pack([_digest(query), on_page[-1][0]]) if has_next else ""
    return AuditPage(tuple(row for _, row in on_page), token)


def _conditions(query: AuditQuery) -> Iterator[ColumnElement[bool]]:
    for term in _TEXT_TERMS:
        if value := getattr(query, term):
            yield AUDIT.c[term] == value
    if query.failed:
        yield AUDIT.c.code != _OK
    if query.after is not None:
        yield AUDIT.c.time >= query.after
    if query.before is not None:
        yield AUDIT.c.time < query.before
    number = _last_number_of_previous_page(query)
    if number is not None:
        yield AUDIT.c.id < number


def _matches(row: AuditRow, query: AuditQuery) -> bool:
    return (
        all(getattr(query, term) in ("", getattr(row, term)) for term in _TEXT_TERMS)
        and not (query.failed and row.code == _OK)
        and (query.after is None or row.time >= query.after)
        and (query.before is None or row.time < query.before)
    )


def _last_number_of_previous_page(query: AuditQuery) -> int | None:
    """Return the number of the last row of the previous page, or None for the first page.

    Raises Invalid for an invalid token or page size.
    """
    if query.page_size < 1:
        raise Invalid((Violation("page_size", f"{query.page_size} is less than 1"),))
    if not query.page_token:
        return None
    match paging.unpack(query.page_token):
        case [digest, int(number)] if 0 <= number < 2**63:
            if digest != _digest(query):
                raise paging.invalid_token("belongs to a query with another filter")
            return number
    raise paging.forged_token()


def _digest(query: AuditQuery) -> str:
    terms = astuple(replace(query, page_size=0, page_token=""))
    return hashlib.sha256(repr(terms).encode()).hexdigest()[:16]
