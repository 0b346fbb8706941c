"""Errors of storage become errors for users with the workspace, the cause and a reason word."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from hai_backend.domain.errors import Exhausted, HaiError, Unavailable
from hai_backend.workspaces import errors

WHERE = Path("/srv/hai/workspaces/ada/w")


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        pytest.param(errno.ENOSPC, Exhausted, "DISK_FULL", id="full"),
        pytest.param(errno.EDQUOT, Exhausted, "DISK_FULL", id="quota of the file system"),
        pytest.param(errno.EACCES, Unavailable, "STORAGE_REFUSES", id="permission lost"),
        pytest.param(errno.EROFS, Unavailable, "STORAGE_REFUSES", id="read only"),
        pytest.param(errno.ENOENT, Unavailable, "STORAGE_LOST", id="deleted"),
        pytest.param(errno.ESTALE, Unavailable, "STORAGE_LOST", id="unmounted"),
        pytest.param(errno.EIO, Unavailable, "STORAGE_FAILS", id="broken"),
    ],
)
def test_errors_of_the_system_are_mapped(number: int, kind: type[HaiError], reason: str) -> None:
    with pytest.raises(kind) as error, errors.map_storage_errors(WHERE):
        raise OSError(number, os.strerror(number))
    assert error.value.reason == reason
    assert reason == "DISK_FULL" or "workspace ada/w" in str(error.value)


def test_an_index_that_another_server_uses_is_reported(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    connection.execute("CREATE TABLE t(x)")
    connection.execute("BEGIN EXCLUSIVE")
    late = sqlite3.connect(tmp_path / "db", timeout=0)
    with pytest.raises(Unavailable) as error, errors.map_storage_errors(WHERE):
        late.execute("SELECT * FROM t")
    assert error.value.reason == "STORAGE_BUSY"
    late.close()
    connection.close()


def test_a_file_that_is_not_an_index_is_reported(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"not a database" * 100)
    broken = sqlite3.connect(tmp_path / "db")
    with pytest.raises(Unavailable) as error, errors.map_storage_errors(WHERE):
        broken.execute("SELECT * FROM sqlite_schema")
    assert error.value.reason == "STORAGE_FAILS"
    broken.close()
