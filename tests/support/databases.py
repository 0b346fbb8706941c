"""Databases for tests. On a PostgreSQL server, each test has a database of its own.

With HAI_TEST_STORE=postgres the suite runs on PostgreSQL, like a server in production. The database of a test is then
a copy of a database that has all tables, because a migration in each test would take longer than the test.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy import make_url

from hai_backend.store.base import Store
from hai_backend.store.connect import open_store

_migrated: list[str] = []
"""The name of the database that others are copied from, made by the first test of this process."""


async def create_database(server: str, template: str = "template1") -> str:
    """Create a database on a PostgreSQL server, a copy of `template`, and return its URL. Nobody may use `template`."""
    name = f"hai_test_{uuid.uuid4().hex}"
    await _execute(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return make_url(server).set(database=name).render_as_string(hide_password=False)


async def drop_database(server: str, url: str) -> None:
    """Drop the database, even if it has open connections."""
    await _execute(server, f'DROP DATABASE "{make_url(url).database}" WITH (FORCE)')


@asynccontextmanager
async def database(server: str, template: str = "template1") -> AsyncIterator[str]:
    """A new database; dropped at the end."""
    url = await create_database(server, template)
    try:
        yield url
    finally:
        await drop_database(server, url)


@asynccontextmanager
async def default_database() -> AsyncIterator[str]:
    """The address of a database with all tables; empty where tests do not run on PostgreSQL."""
    if os.environ.get("HAI_TEST_STORE") != "postgres":
        yield ""
        return
    server = os.environ["HAI_TEST_POSTGRES"]
    async with database(server, await _template(server)) as url:
        yield url


@asynccontextmanager
async def default_store() -> AsyncIterator[Store]:
    """An open and empty store of the test's own: in memory, or on PostgreSQL."""
    async with default_database() as url:
        store = open_store(url or "memory:")
        await store.open()
        try:
            yield store
        finally:
            await store.close()


async def _template(server: str) -> str:
    """Return the name of a database that has all tables and no rows. Creates it on the first call."""
    if not _migrated:
        url = await create_database(server)
        store = open_store(url)
        await store.open()
        await store.close()
        _migrated.append(str(make_url(url).database))
    return _migrated[0]


async def _execute(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
