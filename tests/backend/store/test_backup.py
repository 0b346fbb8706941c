"""Backups of SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_backend.domain.errors import Conflict, HaiError, Invalid
from hai_backend.store.backup import backup
from hai_backend.store.base import Store
from hai_backend.store.connect import open_store
from tests.support.builders import a_task


async def test_a_backup_contains_the_state_of_its_moment(sqlite_path: Path, tmp_path: Path) -> None:
    url, copy = f"sqlite:///{sqlite_path}", tmp_path / "copy.db"
    store = open_store(url)
    await store.open()
    saved = await store.create_task(a_task(name="saved"), ())
    backup(url, copy)  # while a server uses the database
    await store.create_task(a_task(name="later"), ())
    await store.close()
    assert await unfinished_tasks(open_store(f"sqlite:///{copy}")) == [saved]
    backup(url, tmp_path / "second.db")  # while no server runs
    assert len(await unfinished_tasks(open_store(f"sqlite:///{tmp_path / 'second.db'}"))) == 2


async def unfinished_tasks(store: Store) -> list[object]:
    await store.open()
    found = await store.unfinished_tasks()
    await store.close()
    return [*found]


def test_a_backup_is_one_private_file(sqlite_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    backup(f"sqlite:///{sqlite_path}", copy)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert [*copy.parent.iterdir()] == [copy]


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        pytest.param("postgresql://hai@db/hai", Invalid, "pg_dump", id="another database"),
        pytest.param("sqlite:////none/such.db", Invalid, "nothing to back up", id="no database"),
    ],
)
def test_an_invalid_source_is_refused(
    tmp_path: Path, url: str, kind: type[HaiError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        backup(url, tmp_path / "copy.db")


def test_the_error_names_a_missing_directory(sqlite_path: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=f"there is no directory {tmp_path}/none"):
        backup(f"sqlite:///{sqlite_path}", tmp_path / "none" / "copy.db")


def test_an_existing_file_is_not_overwritten(sqlite_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("precious")
    with pytest.raises(Conflict, match="overwrites nothing"):
        backup(f"sqlite:///{sqlite_path}", copy)
    assert copy.read_text() == "precious"


def test_a_failed_backup_leaves_no_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"no database" * 1000)
    with pytest.raises(HaiError, match="could not be copied"):
        backup(f"sqlite:///{broken}", tmp_path / "copy.db")
    assert [*tmp_path.iterdir()] == [broken]
