"""Tests of inotify events of a root, also when another directory replaces it."""

from __future__ import annotations

import os
from contextlib import aclosing
from pathlib import Path

import pytest

from hai_sync.watch import inotify


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a root with a directory, a link to it, and a link to a directory outside."""
    monkeypatch.setattr(inotify, "WAIT_SECONDS", 0.01)
    for folder in ("root/d/e", "outside"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "root/inside").symlink_to("d")
    (tmp_path / "root/away").symlink_to(tmp_path / "outside")
    return tmp_path / "root"


async def paths_of(watcher) -> set[str] | None:
    """Return the next reported paths."""
    async for paths in watcher:
        if paths is None or paths:
            return paths
    raise AssertionError("it ended")


async def test_events_have_paths_below_the_root_and_not_behind_links(root: Path) -> None:
    odd = os.fsdecode(b"caf\xe9")
    async with aclosing(inotify.changed_paths(str(root))) as watcher:
        assert await paths_of(watcher) is None
        (root / "away/a").write_text("1")
        (root / "inside/e/b").write_text("1")
        assert await paths_of(watcher) == {"d/e/b"}
        (root / odd).write_text("1")
        assert await paths_of(watcher) == {odd}


async def test_a_replaced_root_is_watched_again(root: Path) -> None:
    async with aclosing(inotify.changed_paths(str(root))) as watcher:
        assert await paths_of(watcher) is None
        os.rename(root, root.with_name("elsewhere"))
        os.mkdir(root)
        assert await paths_of(watcher) is None
