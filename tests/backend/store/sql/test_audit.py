"""Audited calls in every store: filters, order and pages."""

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
    ("terms", "expected"),
    [
        pytest.param({}, [4, 3, 2, 1, 0], id="all, newest first"),
        pytest.param({"actor": "ada"}, [1, 0], id="by actor"),
        pytest.param({"method": "StopTask"}, [3, 1, 0], id="by method"),
        pytest.param({"resource": "1"}, [3, 0], id="by resource"),
        pytest.param({"code": "OK"}, [4, 2, 0], id="by code"),
        pytest.param({"failed": True}, [3, 1], id="failed calls"),
        pytest.param(
            {"after": 20.0, "before": 40.0}, [3, 2, 1], id="after is inclusive, before exclusive"
        ),
        pytest.param({"actor": "bob", "failed": True}, [3], id="two terms"),
        pytest.param({"actor": "nobody"}, [], id="no match"),
    ],
)
async def test_a_query_returns_the_matching_rows(
    store: Store, terms: dict[str, Any], expected: list[int]
) -> None:
    await store.add_audit(ROWS)
    page = await store.audit(AuditQuery(**terms))
    assert page.rows == tuple(ROWS[i] for i in expected)
    assert page.next_page_token == ""


async def test_an_unstorable_value_is_invalid_and_not_a_failure_of_the_store(store: Store) -> None:
    """After Unavailable, a caller would repeat the call again and again."""
    calls = (
        store.audit(AuditQuery(actor="a\0b")),
        store.delete_quota("a\0b", False, "g", Priority.LOW),
        store.save_record(Registry("r" * 1_000_000)),
    )
    for call in calls:
        with suppress(Invalid):
            await call


async def test_pages_neither_skip_nor_repeat_while_rows_are_added(store: Store) -> None:
    rows = [AuditRow(float(i), "ada", "StopTask", str(i), "", "OK") for i in range(70)]
    await asyncio.gather(*(store.add_audit([row]) for row in rows))
    query, read = AuditQuery(actor="ada", page_size=16), []
    while True:
        page = await store.audit(query)
        read += page.rows
        await store.add_audit([AuditRow(99.0, "ada", "StopTask", "new", "", "OK")])
        if not page.next_page_token:
            break
        query = replace(query, page_token=page.next_page_token)
    assert read == rows[::-1]


async def test_a_token_of_another_query_is_refused(store: Store) -> None:
    await store.add_audit(ROWS)
    token = (await store.audit(AuditQuery(page_size=2))).next_page_token
    with pytest.raises(Invalid, match="another filter"):
        await store.audit(AuditQuery(actor="ada", page_token=token))
    assert (await store.audit(AuditQuery(page_size=1, page_token=token))).rows == (ROWS[2],)


@pytest.mark.parametrize("token", ["x", "bnVsbA", "WzEsMl0", "WyJhIiwxZTk5XQ", "8J-YgA"])
async def test_a_forged_token_is_refused(store: Store, token: str) -> None:
    with pytest.raises(Invalid, match="page token"):
        await store.audit(AuditQuery(page_token=token))


async def test_a_page_size_below_one_is_refused(store: Store) -> None:
    with pytest.raises(Invalid, match="less than 1"):
        await store.audit(AuditQuery(page_size=0))
