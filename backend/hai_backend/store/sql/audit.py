"""Audited calls, page by page, newest first.

A page goes on below the number of the last row that was shown, and numbers only grow: what is added shifts nothing.
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


def page(connection: Connection, query: AuditQuery) -> AuditPage:
    """One page, one row more than asked for being read to see whether another follows."""
    newest = select(AUDIT).where(*_conditions(query)).order_by(AUDIT.c.id.desc())
    rows = connection.execute(newest.limit(query.page_size + 1)).all()
    return _page(query, [(row[0], convert_admin.audit_of(row)) for row in rows])


def memory_page(kept: Sequence[AuditRow], query: AuditQuery) -> AuditPage:
    """The same of a list, oldest first."""
    below = _below(query)
    end = len(kept) if below is None else max(0, below - 1)
    found = []
    for number in range(min(end, len(kept)), 0, -1):
        if _matches(kept[number - 1], query):
            found.append((number, kept[number - 1]))
        if len(found) > query.page_size:
            break
    return _page(query, found)


def _page(query: AuditQuery, found: Sequence[tuple[int, AuditRow]]) -> AuditPage:
    shown = found[: query.page_size]
    more = len(found) > len(shown)
    token = paging.pack([_digest(query), shown[-1][0]]) if more else ""
    return AuditPage(tuple(row for _, row in shown), token)


def _conditions(query: AuditQuery) -> Iterator[ColumnElement[bool]]:
    for name in ("actor", "method", "resource", "code"):
        if wanted := getattr(query, name):
            yield AUDIT.c[name] == wanted
    if query.failed:
        yield AUDIT.c.code != _OK
    if query.after is not None:
        yield AUDIT.c.time >= query.after
    if query.before is not None:
        yield AUDIT.c.time < query.before
    below = _below(query)
    if below is not None:
        yield AUDIT.c.id < below


def _matches(row: AuditRow, query: AuditQuery) -> bool:
    named = ("actor", "method", "resource", "code")
    return (
        all(getattr(query, name) in ("", getattr(row, name)) for name in named)
        and not (query.failed and row.code == _OK)
        and (query.after is None or row.time >= query.after)
        and (query.before is None or row.time < query.before)
    )


def _below(query: AuditQuery) -> int | None:
    """The number that the page ends below; None: it is the first one. Raises Invalid."""
    if query.page_size < 1:
        raise Invalid((Violation("page_size", f"{query.page_size} is less than 1"),))
    if not query.page_token:
        return None
    match paging.unpack(query.page_token):
        case [digest, int(number)] if 0 <= number < 2**63:
            if digest != _digest(query):
                raise paging.wrong("belongs to a query with another filter")
            return number
    raise paging.not_ours()


def _digest(query: AuditQuery) -> str:
    asked = astuple(replace(query, page_size=0, page_token=""))
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
