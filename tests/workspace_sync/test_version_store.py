"""Tests of saved versions: they are complete, can be found, and are kept long enough."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from hai_sync.version_store import VersionStore

DAY_SECONDS = 86_400
TODAY = 20_000 * DAY_SECONDS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file that is about to be saved."""
    path = tmp_path / "held"
    path.write_text("whole")
    return path


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the store on another file system than the files."""
    rename = os.rename

    def between(source: str | Path, target: str | Path) -> None:
        if Path(source).name == "held":
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "rename", between)


@pytest.mark.usefixtures("elsewhere")
def test_a_file_of_another_file_system_is_saved(source: Path, tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "kept", "1")
    store.add(str(source), "d/x")
    assert [(v.path, v.size) for v in store.versions()] == [("d/x", 5)]
    assert not source.exists()


@pytest.mark.usefixtures("elsewhere")
def test_a_full_disk_leaves_no_incomplete_version(
    source: Path, tmp_path: Path, monkeypatch
) -> None:
    def torn(source: str, target: Path, **how: bool) -> None:
        target.write_text("wh")
        raise OSError(errno.ENOSPC, "No space left on device")

    store = VersionStore(tmp_path / "kept", "1")
    with monkeypatch.context() as full:
        full.setattr(shutil, "copy2", torn)
        with pytest.raises(OSError, match="No space"):
            store.add(str(source), "x")
    assert list(store.versions()) == []
    assert store.find("x") is None
    assert source.read_text() == "whole"
    store.add(str(source), "x")
    assert [version.size for version in store.versions()] == [5]


@pytest.mark.usefixtures("elsewhere")
def test_an_incomplete_copy_of_a_killed_process_is_no_version(source: Path, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    store = VersionStore(tmp_path / "kept", "1")
    with pytest.MonkeyPatch.context() as dying:

        def killed(source: str, target: Path, **how: bool) -> None:
            target.write_text("wh")
            raise Killed

        dying.setattr(shutil, "copy2", killed)
        with pytest.raises(Killed):
            store.add(str(source), "x")
    assert list(store.versions()) == []
    store.add(str(source), "x")
    assert [version.size for version in store.versions()] == [5]


def store_at(now: float, tmp_path: Path) -> VersionStore:
    """Return a store with one version of a given time."""
    source = tmp_path / "held"
    source.write_text("whole")
    store = VersionStore(tmp_path / "kept", str(int(now * 1000)))
    store.add(str(source), "x")
    return store


def test_a_version_is_deleted_after_thirty_days_with_syncs(tmp_path: Path) -> None:
    store = store_at(TODAY + 5, tmp_path)
    for day in range(31):
        assert store.find("x"), day
        for hour in (0, 8, 16):
            store.prune(TODAY + day * DAY_SECONDS + hour * 3600)
    assert store.find("x") is None


def test_a_clock_that_was_wrong_for_a_day_deletes_no_version(tmp_path: Path) -> None:
    store = store_at(TODAY, tmp_path)
    store.prune(TODAY)
    for wrong in (40, 4000, -40, 40):
        store.prune(TODAY + wrong * DAY_SECONDS)
        assert store.find("x")
    for day in range(1, 30):
        store.prune(TODAY + day * DAY_SECONDS)
        assert store.find("x"), day


def test_versions_saved_with_a_fast_clock_delete_no_others(tmp_path: Path) -> None:
    store_at(TODAY, tmp_path)
    ahead = store_at(TODAY + 40 * DAY_SECONDS, tmp_path)
    ahead.prune(TODAY + 40 * DAY_SECONDS)
    assert len(list(ahead.versions())) == 2


def test_unwritable_days_are_no_error(tmp_path: Path) -> None:
    store = store_at(TODAY, tmp_path)
    (tmp_path / "kept/days").mkdir()
    store.prune(TODAY)
    assert store.find("x")
