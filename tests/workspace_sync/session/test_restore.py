"""Tests of restoring saved versions: completely, and never outside of the root."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from hai.client.errors import NotFound, UsageError
from hai_sync.session.restore import restore_local
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import WorkspaceDir, create_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceDir:
    """Create a workspace in which `d/x` was overwritten twice, and the link `d/l` once."""
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/x").write_text("new")
    workspace, _ = create_workspace(root, "w")
    for stamp, content in (("10", "first"), ("11", "second")):
        source = tmp_path / "held"
        source.write_text(content)
        VersionStore(workspace.versions_dir, stamp).add(str(source), "d/x")
    source.symlink_to("../d")
    VersionStore(workspace.versions_dir, "11").add(str(source), "d/l")
    return workspace


def store(workspace: WorkspaceDir) -> VersionStore:
    return VersionStore(workspace.versions_dir)


async def restore(workspace: WorkspaceDir, *paths: str, stamp: str = "") -> None:
    await restore_local(workspace, paths, stamp, lambda: None)


async def test_restore_saves_the_current_file(workspace: WorkspaceDir) -> None:
    await restore(workspace, "d/x")
    assert (workspace.root / "d/x").read_text() == "second"
    await restore(workspace, "d/x", stamp="10")
    assert (workspace.root / "d/x").read_text() == "first"
    assert len([v for v in store(workspace).versions() if v.path == "d/x"]) == 4


async def test_restore_restores_a_link_as_a_link(workspace: WorkspaceDir) -> None:
    await restore(workspace, "d/l")
    assert os.readlink(workspace.root / "d/l") == "../d"
    assert "d/l" in {version.path for version in store(workspace).versions()}


async def test_restore_creates_missing_directories(workspace: WorkspaceDir) -> None:
    shutil.rmtree(workspace.root / "d")
    await restore(workspace, "d/x")
    assert (workspace.root / "d/x").read_text() == "second"


async def test_restore_of_a_directory_lists_its_files(workspace: WorkspaceDir) -> None:
    with pytest.raises(UsageError, match="'d' is a directory") as raised:
        await restore(workspace, "d")
    assert "d/l, d/x" in raised.value.hint
    assert (workspace.root / "d/x").read_text() == "new"


@pytest.mark.parametrize("path", ["nothing", "../d/x", "d/l/x", ".hfai/workspace.yml"])
async def test_restore_restores_nothing_if_one_version_is_missing(
    path: str, workspace: WorkspaceDir
) -> None:
    with pytest.raises(NotFound):
        await restore(workspace, "d/x", path)
    assert (workspace.root / "d/x").read_text() == "new"


async def test_restore_never_writes_through_a_link(workspace: WorkspaceDir, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").write_text("precious")
    shutil.rmtree(workspace.root / "d")
    (workspace.root / "d").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="a directory in its path is a link"):
        await restore(workspace, "d/x")
    assert (tmp_path / "outside/x").read_text() == "precious"


async def test_restore_never_replaces_a_directory(workspace: WorkspaceDir) -> None:
    (workspace.root / "d/x").unlink()
    (workspace.root / "d/x").mkdir()
    with pytest.raises(UsageError, match="d/x is neither a file nor a link"):
        await restore(workspace, "d/x")
    assert (workspace.root / "d/x").is_dir()


async def test_a_full_disk_changes_nothing(
    workspace: WorkspaceDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(source: Path, target: Path, **how: bool) -> None:
        Path(target).write_text("se")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", torn)
    with pytest.raises(OSError, match="No space"):
        await restore(workspace, "d/x")
    assert (workspace.root / "d/x").read_text() == "new"
    assert not list((workspace.private_dir / "tmp").iterdir())


async def test_restore_waits_for_the_lock(workspace: WorkspaceDir, locked_by_other) -> None:
    waits = asyncio.Event()
    with locked_by_other(workspace.state_dir):
        restoring = asyncio.create_task(restore_local(workspace, ["d/x"], "", waits.set))
        await waits.wait()
        assert (workspace.root / "d/x").read_text() == "new"
    await restoring
    assert (workspace.root / "d/x").read_text() == "second"
