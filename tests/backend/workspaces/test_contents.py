"""Contents that count as written are on disk, and no rename replaces a file by accident."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hai_backend.workspaces import contents
from hai_backend.workspaces.contents import Contents, rename_no_replace


@pytest.fixture
def incoming(tmp_path: Path) -> Iterator[Contents]:
    made = Contents(tmp_path / "incoming")
    yield made
    made.close()


def test_a_listing_is_complete_during_another_listing(incoming: Contents) -> None:
    for name in ("a", "b"):
        incoming.put(name, memoryview(b"xy"))
    with os.scandir(incoming.folder) as other:
        next(other, None)  # on btrfs, a listing has only entries that are older than its descriptor
        assert sorted(incoming.list_names()) == ["a", "b"]
        assert incoming.count_bytes() == 4


def test_the_failure_of_an_early_flush_is_raised_by_the_next_sync(
    incoming: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    def works(folder: int) -> int:
        return 0

    monkeypatch.setattr(contents, "_libc", SimpleNamespace(syncfs=fails))
    incoming.sync_early()
    assert incoming._early_sync is not None
    incoming._early_sync.result()
    monkeypatch.setattr(contents, "_libc", SimpleNamespace(syncfs=works))
    with pytest.raises(OSError, match="Input/output"):
        incoming.sync(None)
    incoming.sync(None)


def test_a_slow_disk_delays_no_other_workspace(
    incoming: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, done = Contents(tmp_path / "slow"), threading.Event()

    def syncfs(folder: int) -> int:
        if folder == slow.folder:
            done.wait()
        return 0

    monkeypatch.setattr(contents, "_libc", SimpleNamespace(syncfs=syncfs))
    slow.sync_early()
    incoming.sync_early()
    try:
        assert incoming._early_sync is not None
        incoming._early_sync.result(20)
    finally:
        done.set()
        slow.close()


def test_a_rename_without_replacement_never_replaces(incoming: Contents, tmp_path: Path) -> None:
    incoming.put("new", memoryview(b"new"))
    incoming.put("here", memoryview(b"old"))
    assert not rename_no_replace("new", incoming.folder, "here", incoming.folder)
    assert (tmp_path / "incoming" / "here").read_bytes() == b"old"
    assert rename_no_replace("new", incoming.folder, "there", incoming.folder)
    assert sorted(incoming.list_names()) == ["here", "there"]
    with pytest.raises(FileNotFoundError):
        rename_no_replace("new", incoming.folder, "again", incoming.folder)
