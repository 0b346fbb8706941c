"""Audited calls, in every store: what is asked for, newest first, page by page while others are added."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from hai_backend.domain.catalog.image import Registry
from hai_backend.domain.errors import Invalid
from hai_backend.domain.priority import Priority
from hai_backend.store.base import AuditQuery, AuditRow, Store

ROWS = (
    AuditRow(10.0, "ada", "StopTask", "1", "id=1", "OK"),
    AuditRow(20.0, "ada", "StopTask", "2", "id=2", "PERMISSION_DENIED"),
    AuditRow(30.0, "bob", "CordonNode", "n1", "name='n1'", "OK"),
    AuditRow(30.0, "bob", "StopTask", "1", "id=1", "NOT_FOUND"),
    AuditRow(40.0, "root", "CreateUser", "bob", "name='bob'", "OK"),
)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        pytest.param({}, [4, 3, 2, 1, 0], id="all, newest first"),
        pytest.param({"actor": "ada"}, [1, 0], id="who"),
        pytest.param({"method": "StopTask"}, [3, 1, 0], id="what"),
        pytest.param({"resource": "1"}, [3, 0], id="about what"),
        pytest.param({"code": "OK"}, [4, 2, 0], id="how it ended"),
        pytest.param({"failed": True}, [3, 1], id="what was refused"),
        pytest.param({"after": 20.0, "before": 40.0}, [3, 2, 1], id="begin included, end not"),
        pytest.param({"actor": "bob", "failed": True}, [3], id="both"),
        pytest.param({"actor": "nobody"}, [], id="nothing"),
    ],
)
async def test_what_is_asked_for(store: Store, asked: dict[str, Any], found: list[int]) -> None:
    await store.add_audit(ROWS)
    page = await store.audit(AuditQuery(**asked))
    assert page.rows == tuple(ROWS[i] for i in found)
    assert page.next_page_token == ""


async def test_what_a_store_cannot_hold_is_the_mistake_of_who_asks(store: Store) -> None:
    """Who is told that the store is away asks again and again."""
    asks = (
        store.audit(AuditQuery(actor="a\0b")),
        store.delete_quota("a\0b", False, "g", Priority.LOW),
        store.save_record(Registry("r" * 1_000_000)),
    )
    for ask in asks:
        with suppress(Invalid):
            await ask


async def test_pages_neither_skip_nor_repeat_while_rows_are_added(store: Store) -> None:
    rows = [AuditRow(float(i), "ada", "StopTask", str(i), "", "OK") for i in range(70)]
    await asyncio.gather(*(store.add_audit([row]) for row in rows))
    query, seen = AuditQuery(actor="ada", page_size=16), []
    while True:
        page = await store.audit(query)
        seen += page.rows
        await store.add_audit([AuditRow(99.0, "ada", "StopTask", "new", "", "OK")])
        if not page.next_page_token:
            break
        query = replace(query, page_token=page.next_page_token)
    assert seen == rows[::-1]


async def test_a_token_of_another_query_is_refused(store: Store) -> None:
    await store.add_audit(ROWS)
    token = (await store.audit(AuditQuery(page_size=2))).next_page_token
    with pytest.raises(Invalid, match="another filter"):
        await store.audit(AuditQuery(actor="ada", page_token=token))
    assert (await store.audit(AuditQuery(page_size=1, page_token=token))).rows == (ROWS[2],)


@pytest.mark.parametrize("token", ["x", "bnVsbA", "WzEsMl0", "WyJhIiwxZTk5XQ", "8J-YgA"])
async def test_a_made_up_token_is_refused(store: Store, token: str) -> None:
    with pytest.raises(Invalid, match="page token"):
        await store.audit(AuditQuery(page_token=token))


async def test_a_page_has_a_row_at_least(store: Store) -> None:
    with pytest.raises(Invalid, match="less than 1"):
        await store.audit(AuditQuery(page_size=0))
