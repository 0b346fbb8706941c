"""Versions that were kept come back whole, in their places, and never outside the root."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from hai.client.errors import NotFound, UsageError
from hai_sync.session.restore import restore_here
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import WorkspaceDir, create


@pytest.fixture
def place(tmp_path: Path) -> WorkspaceDir:
    """A workspace in which `d/x` was overwritten twice, and `d/l`, a link, once."""
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/x").write_text("new")
    place, _ = create(root, "w")
    for stamp, content in (("10", "first"), ("11", "second")):
        held = tmp_path / "held"
        held.write_text(content)
        VersionStore(place.state / "kept", stamp).keep(str(held), "d/x")
    held.symlink_to("../d")
    VersionStore(place.state / "kept", "11").keep(str(held), "d/l")
    return place


def kept(place: WorkspaceDir) -> VersionStore:
    return VersionStore(place.state / "kept")


async def restore(place: WorkspaceDir, *paths: str, stamp: str = "") -> None:
    await restore_here(place, paths, stamp, lambda: None)


async def test_what_is_there_is_kept_when_a_version_comes_back(place: WorkspaceDir) -> None:
    await restore(place, "d/x")
    assert (place.root / "d/x").read_text() == "second"
    await restore(place, "d/x", stamp="10")
    assert (place.root / "d/x").read_text() == "first"
    assert len([v for v in kept(place).versions() if v.path == "d/x"]) == 4


async def test_a_link_comes_back_as_one(place: WorkspaceDir) -> None:
    await restore(place, "d/l")
    assert os.readlink(place.root / "d/l") == "../d"
    assert "d/l" in {version.path for version in kept(place).versions()}


async def test_directories_that_are_gone_are_made(place: WorkspaceDir) -> None:
    shutil.rmtree(place.root / "d")
    await restore(place, "d/x")
    assert (place.root / "d/x").read_text() == "second"


async def test_of_a_directory_the_files_are_told(place: WorkspaceDir) -> None:
    with pytest.raises(UsageError, match="'d' is a directory") as told:
        await restore(place, "d")
    assert "d/l, d/x" in told.value.hint
    assert (place.root / "d/x").read_text() == "new"


@pytest.mark.parametrize("path", ["nothing", "../d/x", "d/l/x", ".hfai/workspace.yml"])
async def test_one_that_was_not_kept_stops_all(path: str, place: WorkspaceDir) -> None:
    with pytest.raises(NotFound):
        await restore(place, "d/x", path)
    assert (place.root / "d/x").read_text() == "new"


async def test_nothing_is_written_through_a_link(place: WorkspaceDir, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").write_text("precious")
    shutil.rmtree(place.root / "d")
    (place.root / "d").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="a part of the way to it is a link"):
        await restore(place, "d/x")
    assert (tmp_path / "outside/x").read_text() == "precious"


async def test_a_directory_in_its_place_stays(place: WorkspaceDir) -> None:
    (place.root / "d/x").unlink()
    (place.root / "d/x").mkdir()
    with pytest.raises(UsageError, match="d/x is neither a file nor a link"):
        await restore(place, "d/x")
    assert (place.root / "d/x").is_dir()


async def test_a_full_disk_changes_nothing(
    place: WorkspaceDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(source: Path, target: Path, **how: bool) -> None:
        Path(target).write_text("se")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", torn)
    with pytest.raises(OSError, match="No space"):
        await restore(place, "d/x")
    assert (place.root / "d/x").read_text() == "new"
    assert not list((place.own / "tmp").iterdir())


async def test_it_takes_its_turn(place: WorkspaceDir, held) -> None:
    waits = asyncio.Event()
    with held(place.state):
        restoring = asyncio.create_task(restore_here(place, ["d/x"], "", waits.set))
        await waits.wait()
        assert (place.root / "d/x").read_text() == "new"
    await restoring
    assert (place.root / "d/x").read_text() == "second"
