"""Tests of outward links, and of links that could lead a sync out of the workspace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hai_sync.core.links import Links
from hai_sync.core.reconcile_options import Mode, Policy, Rules
from hai_sync.scan import Filter
from hai_sync.session.options import NullListener, Refused, Report, SyncOptions


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Create a directory with a data set outside of any workspace."""
    folder = tmp_path / "outside"
    (folder / "set/deep").mkdir(parents=True)
    (folder / "set/deep/x").write_text("1")
    (folder / "file").write_text("content")
    return folder


def shape(root: Path) -> dict[str, str]:
    """Return the files and links below a root, without following links."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != ".hfai"]
        for path in (Path(folder, name) for name in [*folders, *files]):
            name = str(path.relative_to(root))
            if path.is_symlink():
                found[name] = f"-> {os.readlink(path)}"
            elif path.is_file():
                found[name] = path.read_text()
    return found


async def push(laptop, links: Links = Links.AUTO, **more) -> Report:
    return await laptop.push(filter=Filter(links=links), **more)


async def test_by_default_links_to_existing_targets_are_kept(laptop, outside: Path) -> None:
    """The server of these tests runs tasks on this machine, so local paths exist on the cluster."""
    laptop.write("code.py", "1")
    (laptop.root / "data").symlink_to(outside / "set")
    (laptop.root / "gone").symlink_to("/no/such/path")
    (laptop.root / "up").symlink_to("../outside")
    (laptop.root / "inside").symlink_to("code.py")
    for _ in range(2):
        report = await push(laptop)
        assert (set(report.skipped), report.problems, report.in_sync) == ({"gone", "up"}, {}, True)
        synced = {"code.py": "1", "data": f"-> {outside}/set", "inside": "-> code.py"}
        assert shape(laptop.cluster) == synced
    assert "/no/such/path" in report.skipped["gone"]


@pytest.mark.parametrize(
    ("links", "synced", "skipped"),
    [
        pytest.param(Links.KEEP, {"data", "gone"}, {"up"}, id="keep"),
        pytest.param(Links.SKIP, set(), {"data", "gone", "up"}, id="skip"),
    ],
)
async def test_the_links_option_decides(laptop, outside: Path, links, synced, skipped) -> None:
    (laptop.root / "data").symlink_to(outside / "set")
    (laptop.root / "gone").symlink_to("/no/such/path")
    (laptop.root / "up").symlink_to("../outside")
    report = await push(laptop, links)
    assert (set(report.skipped), set(shape(laptop.cluster))) == (skipped, synced)


async def test_a_link_known_to_a_pull_is_still_skipped(laptop, outside: Path) -> None:
    (laptop.root / "data").symlink_to(outside / "set")
    await laptop.pull()
    assert list((await push(laptop, Links.SKIP)).skipped) == ["data"]
    assert shape(laptop.cluster) == {}


async def test_a_kept_link_survives_scans_pulls_and_restores(laptops, outside: Path) -> None:
    one, two = await laptops("one"), await laptops("two")
    (one.root / "data").symlink_to(outside / "set")
    await push(one)
    one.write("a", "1")
    assert (await one.sync()).in_sync
    assert (await two.sync()).in_sync
    assert shape(two.root) == shape(one.cluster) == {"a": "1", "data": f"-> {outside}/set"}
    (two.root / "data").unlink()
    assert (await two.sync()).in_sync
    assert shape(one.cluster) == {"a": "1"}
    assert (outside / "set/deep/x").read_text() == "1"


async def test_strict_refuses_to_skip_links(laptop) -> None:
    laptop.write("code.py", "1")
    (laptop.root / "gone").symlink_to("/no/such/path")
    report = await push(laptop, strict=True)
    assert (report.refused, laptop.on_cluster()) == (Refused.SKIPPED, {})
    (laptop.root / "gone").unlink()
    assert (await push(laptop, strict=True)).in_sync


async def test_a_skipped_link_that_replaces_a_file_removes_nothing(laptop) -> None:
    laptop.write("data/x", "1")
    await laptop.push()
    shutil.rmtree(laptop.root / "data")
    (laptop.root / "data").symlink_to("/no/such/path")
    report = await push(laptop)
    assert (list(report.skipped), laptop.on_cluster()) == (["data"], {"data/x": b"1"})


async def test_copy_syncs_targets_of_links(laptop, outside: Path) -> None:
    (laptop.root / "data").symlink_to(outside / "set")
    (laptop.root / "file").symlink_to("../outside/file")
    (laptop.root / "gone").symlink_to("/no/such/path")
    assert list((await push(laptop, Links.COPY)).skipped) == ["gone"]
    assert shape(laptop.cluster) == {"data/deep/x": "1", "file": "content"}
    (outside / "set/deep/x").write_text("22")
    (outside / "file").write_text("new content")
    assert (await push(laptop, Links.COPY)).in_sync
    assert shape(laptop.cluster) == {"data/deep/x": "22", "file": "new content"}
    assert not (await push(laptop, Links.COPY)).outcome.to_remote


async def test_copy_does_not_follow_circles(laptop, outside: Path) -> None:
    (laptop.root / "d").mkdir()
    (laptop.root / "d/up").symlink_to("../..")
    (laptop.root / "data").symlink_to(outside / "set")
    (outside / "set/back").symlink_to(outside)
    (outside / "again").symlink_to(outside / "set")
    (laptop.root / "self").symlink_to(laptop.root)
    report = await push(laptop, Links.COPY)
    assert set(report.skipped) == {"d/up", "self", "data/back"}
    assert shape(laptop.cluster) == {"data/deep/x": "1"}


async def test_copy_ignores_links_from_the_cluster(laptops, outside: Path) -> None:
    one, two = await laptops("one"), await laptops("two")
    (one.root / "key").symlink_to(outside / "file")
    await push(one, Links.KEEP)
    await two.pull()
    for verify in (False, True):
        await two.push(filter=Filter(links=Links.COPY), verify=verify)
        assert shape(one.cluster) == {"key": f"-> {outside}/file"}


@pytest.mark.parametrize("mode", [Mode.PULL, Mode.SYNC])
async def test_nothing_is_written_through_a_copied_link(laptop, outside: Path, mode: Mode) -> None:
    (laptop.root / "data").symlink_to(outside / "set")
    (laptop.root / "file").symlink_to(outside / "file")
    await push(laptop, Links.COPY)
    before = shape(outside)
    (laptop.cluster / "data/deep/x").write_text("written on the cluster")
    (laptop.cluster / "data/deep/new").write_text("written on the cluster")
    (laptop.cluster / "file").unlink()
    sync_options = {
        "filter": Filter(links=Links.COPY),
        "policy": Policy.REMOTE,
        "many_removals": True,
    }
    report = await laptop.sync(mode, **sync_options)
    assert report.problems
    assert shape(outside) == before


class OnEveryStage(NullListener):
    """Calls a function at the beginning of each stage of a sync."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name, self._work = name, work

    def stage(self, name: str, files: int, size: int) -> None:
        """Call the function."""
        if name == self._name:
            self._work()


def replaced_by_link(folder: Path, chain: Path, outside: Path) -> Callable[[], None]:
    """Return a function that replaces a directory by a chain of links to a directory outside."""

    def work() -> None:
        if not folder.is_symlink():
            folder.rename(folder.with_name(f"{folder.name}-moved"))
            chain.symlink_to(outside)
            folder.symlink_to(chain)

    return work


async def test_a_pull_writes_nothing_through_a_parent_that_was_replaced(
    laptop, outside: Path
) -> None:
    laptop.write("d/x", "1")
    laptop.write("d/e/y", "1")
    await laptop.push()
    before = shape(outside)
    for path in ("d/x", "d/new", "d/e/y", "d/e/z/new"):
        (laptop.cluster / path).parent.mkdir(exist_ok=True, parents=True)
        (laptop.cluster / path).write_text("from the cluster")
    work = replaced_by_link(laptop.root / "d", laptop.root.parent / "chain", outside)
    laptop.session.listener = OnEveryStage("download", work)
    laptop.session.forget_hints()
    report = await laptop.session.sync(SyncOptions(Rules(Mode.PULL, Policy.REMOTE)))
    assert report.problems
    assert shape(outside) == before


async def test_a_push_writes_nothing_through_a_parent_that_was_replaced(
    laptop, outside: Path
) -> None:
    laptop.write("d/x", "1")
    laptop.write("d/e/y", "1")
    await laptop.push()
    before = shape(outside)
    for path in ("d/x", "d/new", "d/e/y", "d/e/z/new"):
        laptop.write(path, "from the laptop")
    work = replaced_by_link(laptop.cluster / "d", laptop.cluster.parent / "chain", outside)
    laptop.session.listener = OnEveryStage("upload", work)
    laptop.session.forget_hints()
    await laptop.session.sync(SyncOptions(Rules(Mode.PUSH, Policy.LOCAL), many_removals=True))
    assert shape(outside) == before


async def test_a_push_writes_nothing_through_a_kept_link(laptop, outside: Path) -> None:
    (laptop.root / "data").symlink_to(outside / "set")
    await push(laptop)
    before = shape(outside)
    (laptop.root / "data").unlink()
    laptop.write("data/deep/x", "no link any more")
    assert (await push(laptop)).in_sync
    assert shape(laptop.cluster) == {"data/deep/x": "no link any more"}
    assert shape(outside) == before
