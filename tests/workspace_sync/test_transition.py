"""Tests of local changes: they are atomic, save old versions, and stay inside the root."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from hai_sync.core.diff import Change
from hai_sync.core.entry import DIRECTORY, Entry, Kind
from hai_sync.file_fingerprint import fingerprint
from hai_sync.hashing import hash_files
from hai_sync.scan import Filter, ScanCache, scan
from hai_sync.transition.apply import Transition
from hai_sync.transition.directories import Directories
from hai_sync.transition.safe_replace import FaultHook, SafeReplace
from hai_sync.version_store import VersionStore

NEW = Entry(Kind.FILE, b"n" * 32, 3)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a tree with a file and a directory, and a directory outside that must never change."""
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "a").write_text("old")
    (root / "d/x").write_text("old")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").write_text("precious")
    return root


def transition(root: Path, fault_hook: FaultHook = lambda step: None) -> Transition:
    """Return a transition with staged contents for every file."""
    found = scan(root, ScanCache(), Filter())
    hold = root.parent / "hold"
    hold.mkdir(exist_ok=True)
    numbers = iter(range(100))

    def staged(change: Change) -> str:
        path = hold / f"new-{next(numbers)}"
        path.write_text("new")
        return str(path)

    kept = VersionStore(root.parent / "kept", "1")
    versions = SafeReplace(found.fingerprints, kept, hold, fault_hook)
    return Transition(Directories(root), versions, staged)


def entries(root: Path) -> dict[str, Entry]:
    found = scan(root, ScanCache(), Filter())
    hash_files(found, [p for p, e in found.tree.items() if e.kind is Kind.FILE])
    return found.tree


def test_all_kinds_of_changes_are_applied(root: Path) -> None:
    old = entries(root)
    done = transition(root).apply(
        [
            Change("a", old["a"], NEW),
            Change("b", None, NEW),
            Change("d/x", old["d/x"], None),
            Change("d", old["d"], None),
            Change("e", None, DIRECTORY),
            Change("e/l", None, Entry(Kind.SYMLINK, target="../a")),
        ]
    )
    assert not done.problems
    assert (root / "a").read_text() == (root / "b").read_text() == "new"
    assert not (root / "d").exists()
    assert os.readlink(root / "e/l") == "../a"
    kept = VersionStore(root.parent / "kept")
    assert {version.path for version in kept.versions()} == {"a", "d/x"}


def test_a_path_that_changed_meanwhile_is_not_touched(root: Path) -> None:
    old = entries(root)
    work = transition(root)
    (root / "a").write_text("edited now")
    (root / "d/x").write_text("this too")
    (root / "b").write_text("created now")
    done = work.apply(
        [Change("a", old["a"], NEW), Change("b", None, NEW), Change("d/x", old["d/x"], None)]
    )
    assert done.changed_files == {"a", "b", "d/x"}
    assert (root / "a").read_text() == "edited now"
    assert (root / "b").read_text() == "created now"
    assert (root / "d/x").read_text() == "this too"


def test_a_write_into_a_replaced_file_is_saved(root: Path) -> None:
    old = entries(root)
    with (root / "a").open("a") as editor:
        transition(root).apply([Change("a", old["a"], NEW)])
        editor.write(" and more")
    assert (root.parent / "kept/1/a").read_text() == "old and more"


def test_a_file_replaced_at_the_last_moment_is_saved(root: Path) -> None:
    """An editor gives the name to a new file between the last check and the rename by the sync."""

    def editor(step: str) -> None:
        if step == "overwrite":
            (root / "saved").write_text("saved just now")
            os.replace(root / "saved", root / "a")

    old = entries(root)
    assert not transition(root, fault_hook=editor).apply([Change("a", old["a"], NEW)]).problems
    assert (root / "a").read_text() == "new"
    assert (root.parent / "kept/1/a").read_text() == "saved just now"


def test_a_failed_replacement_keeps_the_staged_content(root: Path) -> None:
    def delete_file(step: str) -> None:
        if step == "overwrite":
            (root / "a").unlink()

    old = entries(root)
    assert set(
        transition(root, fault_hook=delete_file).apply([Change("a", old["a"], NEW)]).problems
    ) == {"a"}
    assert [path.read_text() for path in (root.parent / "hold").iterdir()] == ["new"]
    assert not list(VersionStore(root.parent / "kept").versions())


@pytest.mark.parametrize(
    ("before", "executable", "after"),
    [
        pytest.param(0o600, False, 0o600, id="a secret stays one"),
        pytest.param(0o600, True, 0o700, id="a secret that can be run from now on"),
        pytest.param(0o750, False, 0o640, id="it can no longer be run"),
        pytest.param(0o444, False, 0o444, id="nobody was to write it"),
    ],
)
def test_an_overwritten_file_keeps_its_permissions(
    before: int, executable: bool, after: int, root: Path
) -> None:
    (root / "a").chmod(before)
    new = replace(NEW, executable=executable)
    assert not transition(root).apply([Change("a", entries(root)["a"], new)]).problems
    assert (root / "a").read_text() == "new"
    assert stat.S_IMODE((root / "a").stat().st_mode) == after


def test_the_mode_of_a_replaced_link_is_not_used(root: Path) -> None:
    (root / "l").symlink_to("a")
    transition(root).apply([Change("l", Entry(Kind.SYMLINK, target="a"), NEW)])
    assert (root / "l").stat().st_mode == (root / "a").stat().st_mode


def test_nothing_is_changed_through_a_link(root: Path) -> None:
    old = entries(root)
    work = transition(root)
    (root / "d/x").unlink()
    (root / "d").rmdir()
    (root / "d").symlink_to(root.parent / "outside")
    done = work.apply(
        [Change("d/x", old["d/x"], NEW), Change("d/y", None, NEW), Change("d/x", old["d/x"], None)]
    )
    assert set(done.problems) == {"d/x", "d/y"}
    assert [p.name for p in (root.parent / "outside").iterdir()] == ["x"]
    assert (root.parent / "outside/x").read_text() == "precious"


def test_a_full_disk_stops_and_is_reported(root: Path) -> None:
    old = entries(root)

    def full(step: str) -> None:
        if step == "create":
            raise OSError(errno.ENOSPC, "No space left on device")

    done = transition(root, fault_hook=full).apply(
        [Change("b", None, NEW), Change("c", None, NEW), Change("a", old["a"], NEW)]
    )
    assert "c" not in done.problems
    assert "b" in done.problems
    assert (root / "a").read_text() == "new"  # this change comes first
    assert not (root / "b").exists()


def test_a_forbidden_change_does_not_stop_the_others(root: Path) -> None:
    def forbidden(step: str) -> None:
        if step == "mkdir":
            raise PermissionError(errno.EACCES, "Permission denied")

    done = transition(root, fault_hook=forbidden).apply(
        [Change("e", None, DIRECTORY), Change("f", None, NEW)]
    )
    assert done.problems == {"e": "Permission denied"}
    assert (root / "f").read_text() == "new"


def test_a_file_system_without_hard_links_is_supported(root: Path, monkeypatch) -> None:
    def no_links(*args: object, **more: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    old = entries(root)
    work = transition(root)
    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr("hai_sync.transition.safe_replace.exchange", lambda *names: False)
    assert not work.apply([Change("b", None, NEW), Change("a", old["a"], NEW)]).problems
    assert (root / "a").read_text() == (root / "b").read_text() == "new"
    assert (root.parent / "kept/1/a").read_text() == "old"


def test_times_in_the_future_or_before_1970_are_not_trusted(root: Path) -> None:
    """Such times are synced, but never prove that a file is unchanged."""
    os.utime(root / "a", ns=(0, 4_000_000_000 * 10**9))
    os.utime(root / "d/x", ns=(0, -(10**9)))
    found = scan(root, ScanCache(), Filter())
    cache = ScanCache(found.fingerprints, lambda: entries(root), found.scanned_at_ns)
    again = scan(root, cache, Filter())
    assert "a" in again.changed  # the file may change without a later time
    assert found.tree["d/x"].mtime_ns == 0
    assert fingerprint((root / "a").lstat()) == again.fingerprints["a"]
