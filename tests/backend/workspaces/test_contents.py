"""Contents on their way to the disk: what is said to be there is, and nothing is replaced unmeant."""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hai_backend.workspaces import contents
from hai_backend.workspaces.contents import Store, rename_into_nothing


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "incoming")
    yield made
    made.close()


def test_an_early_flush_that_fails_is_told_to_who_must_know(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    def works(folder: int) -> int:
        return 0

    monkeypatch.setattr(contents, "_libc", SimpleNamespace(syncfs=fails))
    store.sync_early()
    assert store._early is not None
    store._early.result()
    monkeypatch.setattr(contents, "_libc", SimpleNamespace(syncfs=works))
    with pytest.raises(OSError, match="Input/output"):
        store.sync(None)
    store.sync(None)


def test_a_slow_disk_keeps_no_other_workspace_waiting(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, done = Store(tmp_path / "slow"), threading.Event()

    def syncfs(folder: int) -> int:
        if folder == slow.folder:
            done.wait()
        return 0

    monkeypatch.setattr(contents, "_libc", SimpleNamespace(syncfs=syncfs))
    slow.sync_early()
    store.sync_early()
    try:
        assert store._early is not None
        store._early.result(20)
    finally:
        done.set()
        slow.close()


def test_a_rename_into_nothing_replaces_nothing(store: Store, tmp_path: Path) -> None:
    store.put("new", memoryview(b"new"))
    store.put("here", memoryview(b"old"))
    assert not rename_into_nothing("new", store.folder, "here", store.folder)
    assert (tmp_path / "incoming" / "here").read_bytes() == b"old"
    assert rename_into_nothing("new", store.folder, "there", store.folder)
    assert sorted(store.names()) == ["here", "there"]
    with pytest.raises(FileNotFoundError):
        rename_into_nothing("new", store.folder, "again", store.folder)
