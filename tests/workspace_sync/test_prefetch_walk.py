"""Tests that slow storage is read by many threads, with the same result."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from hai_sync import prefetch_walk
from hai_sync.core.reconcile_options import Mode, Rules
from hai_sync.prefetch_walk import PrefetchWalk, is_slow
from hai_sync.scan import Filter, ScanCache, scan
from hai_sync.session.options import SyncOptions


def tree(root: Path) -> None:
    for number in range(30):
        folder = root / f"a{number % 5}" / f"b{number}" / "c"
        folder.mkdir(parents=True)
        (folder / "file").write_text(str(number))
        (folder.parent / ".haiignore").write_text("left\n")
        (folder.parent / "left").write_text("out")
    (root / "link").symlink_to("a1")


@pytest.fixture
def slow_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch_walk, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(prefetch_walk, "ENTRY_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("seconds", "entries", "answer"),
    [
        pytest.param(0.04, 1, False, id="nobody knows yet"),
        pytest.param(0.06, 1000, True, id="60 microseconds each"),
        pytest.param(0.06, 2000, False, id="30 microseconds each"),
        pytest.param(0.6, 200_000, False, id="a large tree"),
    ],
)
def test_slow_storage_is_recognized(seconds: float, entries: int, answer: bool) -> None:
    assert is_slow(seconds, entries) is answer


def test_a_fast_disk_is_read_by_one_thread(tmp_path: Path, monkeypatch) -> None:
    tree(tmp_path)
    monkeypatch.setattr(prefetch_walk, "TRIAL_SECONDS", 60.0)
    monkeypatch.setattr(prefetch_walk, "ThreadPoolExecutor", None)
    assert "a1/b1/c/file" in scan(tmp_path, ScanCache(), Filter()).fingerprints


@pytest.mark.usefixtures("slow_storage")
def test_slow_storage_is_read_by_many_threads(tmp_path: Path, monkeypatch) -> None:
    tree(tmp_path)
    # all threads wait until five directories are being read
    together = threading.Barrier(5, timeout=20)
    real = prefetch_walk.list_directory

    def listed(folder: str) -> prefetch_walk.Items:
        if os.path.basename(folder) in {"a0", "a1", "a2", "a3", "a4"}:
            together.wait()
        return real(folder)

    monkeypatch.setattr(prefetch_walk, "list_directory", listed)
    found = scan(tmp_path, ScanCache(), Filter())
    assert sum(path.endswith("/file") for path in found.fingerprints) == 30


def test_slow_and_fast_walks_find_the_same_entries(tmp_path: Path, request) -> None:
    tree(tmp_path)
    one = scan(tmp_path, ScanCache(), Filter())
    request.getfixturevalue("slow_storage")
    many = scan(tmp_path, ScanCache(), Filter())
    assert many.tree == one.tree
    assert many.fingerprints == one.fingerprints
    assert many.ignored_paths == one.ignored_paths != set()


@pytest.mark.usefixtures("slow_storage")
def test_a_large_directory_is_stated_in_parallel(tmp_path: Path, monkeypatch) -> None:
    for number in range(8 * prefetch_walk.BATCH_SIZE):
        (tmp_path / str(number)).touch()
    together = threading.Barrier(5, timeout=20)
    real, numbers = prefetch_walk.stat_entries, itertools.count(1)

    def counting_stat(items: prefetch_walk.Items) -> None:
        if 1 < next(numbers) < 7:  # the first directory showed that storage is slow
            together.wait()
        real(items)

    monkeypatch.setattr(prefetch_walk, "stat_entries", counting_stat)
    found = scan(tmp_path, ScanCache(), Filter())
    assert (len(found.fingerprints), next(numbers)) == (8 * prefetch_walk.BATCH_SIZE, 9)


@pytest.mark.usefixtures("slow_storage")
def test_an_unreadable_directory_is_reported(tmp_path: Path, monkeypatch) -> None:
    tree(tmp_path)
    real = prefetch_walk.list_directory

    def listed(folder: str) -> prefetch_walk.Items:
        if folder.endswith("/b3"):
            raise PermissionError(13, "Permission denied", folder)
        return real(folder)

    monkeypatch.setattr(prefetch_walk, "list_directory", listed)
    found = scan(tmp_path, ScanCache(), Filter())
    assert found.problems == {"a3/b3": "the directory cannot be read: Permission denied"}
    assert "a3/b8/c/file" in found.fingerprints


def test_a_directory_removed_meanwhile_is_missing(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("x")
    with closing(PrefetchWalk()) as reader:
        (item,) = reader.read(str(tmp_path))
        (tmp_path / "gone").unlink()
        assert item.stat(follow_symlinks=False).st_size == 1  # as it was when it was listed


async def test_a_cancelled_scan_does_not_wait_for_the_walk(laptop, monkeypatch) -> None:
    tree(laptop.root)
    began, may_continue, read = threading.Event(), threading.Event(), []
    real = prefetch_walk.list_directory

    def listed(folder: str) -> prefetch_walk.Items:
        read.append(folder)
        began.set()
        may_continue.wait(20)
        return real(folder)

    monkeypatch.setattr(prefetch_walk, "list_directory", listed)
    syncing = asyncio.create_task(laptop.session.sync(SyncOptions(Rules(Mode.PUSH))))
    await asyncio.to_thread(began.wait, 20)
    syncing.cancel()
    await asyncio.wait({syncing})
    may_continue.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert len(read) == 1
