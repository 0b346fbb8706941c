"""Files are replaced completely or not at all, and no temporary file remains."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hai.host.atomic_write import replace_file, replacing


def test_who_writes_meanwhile_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync = tmp_path / "server.json", os.fsync

    def meanwhile(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        replace_file(path, b"the other's")
        assert path.read_bytes() == b"the other's"

    monkeypatch.setattr(os, "fsync", meanwhile)
    replace_file(path, b"ours")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"ours", [path.name])


def test_what_can_not_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "admin.token"
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"secret")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"before", [path.name])


def test_half_of_it_is_never_there(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"

    def interrupted() -> None:
        with replacing(path) as file:
            file.write(b"half")
            file.flush()
            assert not path.exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("mode", "wanted"), [(0o600, 0o600), (0o666, 0o640)])
def test_a_new_file_is_as_readable_as_asked_less_the_umask(
    tmp_path: Path, mode: int, wanted: int
) -> None:
    path, before = tmp_path / "a", os.umask(0o027)
    try:
        with replacing(path, mode):
            pass
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == wanted
