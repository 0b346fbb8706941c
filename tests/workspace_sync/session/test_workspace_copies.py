"""Tests of copied workspaces: a copy has the same id, and must not undo changes of the original."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hai.client.errors import UsageError
from hai.client.profile import Profile
from hai_sync.cli.main import main
from hai_sync.cli.session_factory import open_session
from hai_sync.core.reconcile_options import Mode, Rules
from hai_sync.session.options import Refused, Report, SyncOptions
from hai_sync.workspace_dir import (
    create_workspace,
    find_workspace,
    is_same_root,
    root_id,
    root_path,
)


def _copied(root: Path) -> Path:
    return Path(shutil.copytree(root, root.with_name("copy"), symlinks=True))


async def _synced(laptop, root: Path, mode: Mode = Mode.PUSH) -> Report:
    """Sync in a directory as a new process would."""
    session = open_session(find_workspace(root), laptop.session.remote.connection)
    try:
        return await session.sync(SyncOptions(Rules(mode)))
    finally:
        session.index.close()


async def test_a_copy_is_refused_and_the_original_still_syncs(laptop) -> None:
    laptop.write("train.py", "one")
    await laptop.push()
    copy = _copied(laptop.root)
    laptop.write("train.py", "two")
    laptop.write("new", "1")
    await laptop.push()
    with pytest.raises(UsageError, match="is a copy of the workspace") as refused:
        await _synced(laptop, copy)
    assert str(laptop.root) in refused.value.message
    assert str(copy / ".hfai") in refused.value.hint
    assert laptop.on_cluster() == {"train.py": b"two", "new": b"1"}
    (laptop.root / "new").unlink()
    assert (await laptop.push()).in_sync
    assert laptop.on_cluster() == {"train.py": b"two"}


async def test_a_copy_that_is_initialized_again_starts_without_a_base(laptop) -> None:
    laptop.write("train.py", "one")
    laptop.write("same", "1")
    await laptop.push()
    copy = _copied(laptop.root)
    laptop.write("train.py", "two")
    laptop.write("new", "1")
    await laptop.push()
    shutil.rmtree(copy / ".hfai")
    create_workspace(copy, laptop.session.workspace.name)
    report = await _synced(laptop, copy)
    assert [conflict.path for conflict in report.outcome.conflicts] == ["train.py"]
    assert laptop.on_cluster() == {"train.py": b"two", "new": b"1", "same": b"1"}


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_workspace_from_a_backup_undoes_nothing(laptop, elsewhere: bool) -> None:
    for path in ("train.py", "same", "removed"):
        laptop.write(path, "one")
    await laptop.push()
    backup = _copied(laptop.root)
    laptop.write("train.py", "two")
    laptop.write("new", "1")
    (laptop.root / "removed").unlink()
    await laptop.push()
    shutil.rmtree(laptop.root)
    root = backup if elsewhere else backup.rename(laptop.root)
    report = await _synced(laptop, root)
    assert report.refused is Refused.CONFLICTS
    assert [conflict.path for conflict in report.outcome.conflicts] == ["train.py"]
    assert laptop.on_cluster() == {"train.py": b"two", "new": b"1", "same": b"one"}


async def test_a_workspace_moved_to_another_disk_still_syncs(laptop) -> None:
    laptop.write("a", "1")
    laptop.write("b", "1")
    await laptop.push()
    root = _copied(laptop.root)
    shutil.rmtree(laptop.root)
    assert (await _synced(laptop, root)).in_sync
    (root / "b").unlink()
    (root / "a").write_text("2")
    assert (await _synced(laptop, root)).in_sync
    assert laptop.on_cluster() == {"a": b"2"}


async def test_a_moved_original_is_recognized_and_its_copy_refused(laptop, tmp_path: Path) -> None:
    laptop.write("a", "1")
    await laptop.push()
    copy = _copied(laptop.root)
    moved = laptop.root.rename(tmp_path / "moved")
    (moved / "a").unlink()
    assert (await _synced(laptop, moved)).in_sync
    assert laptop.on_cluster() == {}
    with pytest.raises(UsageError, match="moved"):
        await _synced(laptop, copy)


@pytest.fixture
def root(profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a workspace that was pushed."""
    monkeypatch.setenv("HAI_SERVER", profile.server)
    monkeypatch.setenv("HAI_TOKEN", profile.token)
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.chdir(root)
    (root / "a").write_text("one")
    assert main(["init", f"copied-{os.urandom(5).hex()}"]) == 0
    assert main(["push"]) == 0
    return root


def _in_the_copy(copy: Path) -> Path:
    return copy


def _in_the_place_of_the_original(copy: Path) -> Path:
    original = copy.with_name("root")
    shutil.rmtree(original)
    return copy.rename(original)


def test_no_daemon_is_started_in_a_copy(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(_copied(root))
    assert main(["watch", "start"]) == 2
    assert "is a copy of the workspace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("now", "same"),
    [
        pytest.param("1 7 2f61", True, id="itself"),
        pytest.param("1 7 2f62", True, id="moved"),
        pytest.param("2 7 2f61", True, id="mounted anew"),
        pytest.param("2 7 2f62", False, id="a snapshot"),
        pytest.param("1 8 2f62", False, id="a copy"),
        pytest.param("1 8 2f61", False, id="restored at its place"),
    ],
)
def test_equal_roots_are_recognized(now: str, same: bool) -> None:
    assert is_same_root("1 7 2f61", now) is same


def test_a_root_id_stores_any_path(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9 1")
    root.mkdir()
    assert root_path(root_id(str(root))) == str(root)
