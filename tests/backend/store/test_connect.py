"""Stores are created from database URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_backend.domain.errors import Invalid, Unavailable
from hai_backend.store.connect import open_store
from hai_backend.store.memory.store import MemoryStore
from hai_backend.store.sql.store import SqlStore


def test_the_address_memory_creates_a_memory_store() -> None:
    assert isinstance(open_store("memory:"), MemoryStore)


@pytest.mark.parametrize(
    "url",
    ["sqlite:////tmp/x.db", "sqlite:///x.db", "postgresql://u@h/d", "postgresql+asyncpg://h/d"],
)
def test_an_address_of_a_database_creates_a_store_but_no_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store(url), SqlStore)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hai.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://u:secret@h/d",
        "postgresql://h:port/d",
    ],
)
def test_an_invalid_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(Invalid, match="sqlite:///path") as error:
        open_store(url)
    assert "secret" not in str(error.value)


async def test_the_error_names_an_unreachable_database_without_its_password() -> None:
    store = open_store("postgresql://u:secret@127.0.0.1:1/d")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1/d") as error:
        await store.open()
    assert "secret" not in str(error.value)
