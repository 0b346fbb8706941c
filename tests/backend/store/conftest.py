"""Fixtures with an empty store for each test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hai_backend.store.base import Store
from hai_backend.store.connect import open_store


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated empty database. Tests copy it, which is faster than a migration for each test."""
    import asyncio

    path = tmp_path_factory.mktemp("store") / "empty.db"

    async def make() -> None:
        store = open_store(f"sqlite:///{path}")
        await store.open()
        await store.close()

    asyncio.run(make())
    return path


@pytest.fixture
def sqlite_path(migrated_file: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(migrated_file, tmp_path / "hai.db"))


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)],
)
def store_url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('sqlite_path')}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = open_store(store_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def sqlite_store(sqlite_path: Path) -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{sqlite_path}")
    await store.open()
    yield store
    await store.close()
