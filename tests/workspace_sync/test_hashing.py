"""Tests that reading files does not change their access times."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hai_sync import hashing
from hai_sync.hashing import open_file, read_all

# with an access time before the modification, the kernel updates it at the next read
LONG_AGO = (
    1_000_000_000,
    1_600_000_000,
)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems always note it")
def test_reading_an_own_file_keeps_its_access_time(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"text")
    os.utime(tmp_path / "f", LONG_AGO)
    file = open_file(tmp_path, "f")
    assert read_all(file, 4) == b"text"
    os.close(file)
    assert (tmp_path / "f").stat().st_atime == LONG_AGO[0]


@pytest.mark.skipif(sys.platform != "linux", reason="there is but one way")
def test_a_file_of_another_user_is_read_without_noatime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"text")
    opened, calls = os.open, list[int]()

    def only_with_a_trace(path: str, flags: int) -> int:
        calls.append(flags)
        if flags != hashing._READ_FLAGS:
            raise PermissionError(1, "Operation not permitted", path)
        return opened(path, flags)

    monkeypatch.setattr(os, "open", only_with_a_trace)
    file = open_file(tmp_path, "f")
    monkeypatch.undo()
    assert read_all(file, 4) == b"text"
    os.close(file)
    assert calls[-1] == hashing._READ_FLAGS
