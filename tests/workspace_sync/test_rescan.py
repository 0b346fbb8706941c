"""Tests that a rescan of changed paths finds the same as a complete scan."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hai_sync.core.entry import Entry, Kind
from hai_sync.rescan import rescan
from hai_sync.scan import Filter, Scan, ScanCache, scan

NAMES = [*"abc", "a0", "a-"]


def a_path(chance: random.Random, root: Path) -> Path:
    return root.joinpath(*chance.choices(NAMES, k=chance.randint(1, 3)))


def edit(chance: random.Random, root: Path) -> set[Path]:
    """Make an edit in a tree. Return the paths that inotify would report, possibly without some of those below."""
    path = a_path(chance, root)
    below = set(path.rglob("*")) if path.is_dir() else set()
    if any(above.is_file() for above in path.parents):
        return {path}
    if chance.random() < 0.4:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return {path, *(each for each in below if chance.random() < 0.7)}
    if path.is_dir():
        return {path}
    new = [above for above in path.parents if not above.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x" * chance.randint(0, 9))
    return {path, *new}


def plain(tree: dict[str, Entry]) -> dict[str, tuple[Kind, int]]:
    return {path: (entry.kind, entry.size) for path, entry in tree.items()}


@pytest.mark.parametrize("seed", range(40))
def test_a_rescan_finds_the_same_as_a_full_scan(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(20):
        edit(chance, tmp_path)
    before = scan(tmp_path, ScanCache(), Filter())
    before.tree.update(before.changed)
    for _ in range(5):
        hints = {
            path.relative_to(tmp_path).as_posix()
            for _ in range(chance.randint(1, 6))
            for path in edit(chance, tmp_path)
        }
        after = rescan(before, hints | {"never/there"}, Filter())
        assert after is not None
        complete = scan(tmp_path, ScanCache(), Filter())
        assert plain(after.tree) == plain(complete.changed)
        assert after.removed == before.tree.keys() - complete.changed.keys()
        assert after.fingerprints == complete.fingerprints
        before = after
        before.removed, before.changed = set(), {}


def test_a_missing_path_requires_no_full_scan(tmp_path: Path) -> None:
    """A directory is removed with all its files. Each of them is reported, and every second path is a temporary one."""

    class Counted(dict[str, Entry]):
        reads = 0

        def __iter__(self) -> Iterator[str]:
            Counted.reads += 1
            return super().__iter__()

    before = Scan(tmp_path, 0)
    before.tree = Counted({f"d/{i}": Entry(Kind.FILE) for i in range(1000)})
    before.tree["d"] = Entry(Kind.DIRECTORY)
    after = rescan(before, ["d", *(f"d/{i}" for i in range(1000))], Filter())
    assert after is not None
    assert (after.tree, len(after.removed)) == ({}, 1001)
    assert Counted.reads <= 1


def test_a_path_behind_a_link_is_not_rescanned(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x").write_text("1")
    before = scan(tmp_path, ScanCache(), Filter())
    before.tree.update(before.changed)
    (tmp_path / "d").rename(tmp_path / "moved")
    (tmp_path / "d").symlink_to("moved")
    after = rescan(before, ["d", "d/x", "moved"], Filter())
    assert after is not None
    assert plain(after.tree) == plain(scan(tmp_path, ScanCache(), Filter()).changed)
    assert after.removed == {"d/x"}
