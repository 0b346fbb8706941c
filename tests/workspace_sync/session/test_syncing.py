"""Tests of syncs with a real server."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hai.client.errors import HaiError, Unreachable
from hai_sync.core.chunks import compute_digest
from hai_sync.core.diff import Change
from hai_sync.core.reconcile_options import Mode, Policy, Rules
from hai_sync.scan import Filter
from hai_sync.session.apply_remote import RemoteApplier
from hai_sync.session.options import NullListener, Refused, SyncOptions
from hai_sync.transition import fsync as flushing
from hai_sync.version_store import VersionStore

DATA = random.Random(3).randbytes(5 << 20)


async def test_a_push_sends_all_kinds_of_entries(laptop) -> None:
    laptop.write("a.txt", "one")
    laptop.write("run.sh", "#!/bin/sh\n", 0o755)
    laptop.write("d/e/big.bin", DATA)
    laptop.write("empty", b"")
    (laptop.root / "hollow").mkdir()
    (laptop.root / "link").symlink_to("d/e")
    report = await laptop.push()
    assert report.in_sync
    assert laptop.on_cluster() == laptop.read()
    assert os.access(laptop.cluster / "run.sh", os.X_OK)
    assert not os.access(laptop.cluster / "a.txt", os.X_OK)
    assert (laptop.cluster / "hollow").is_dir()
    assert os.readlink(laptop.cluster / "link") == "d/e"
    assert (laptop.cluster / "a.txt").stat().st_mtime == (laptop.root / "a.txt").stat().st_mtime


async def test_a_push_without_changes_sends_nothing(laptop) -> None:
    laptop.write("a")
    await laptop.push()
    report = await laptop.push()
    assert (report.done, report.revision) == (0, 1)


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.PULL])
async def test_files_assumed_equal_by_size_are_compared_by_the_next_sync(
    mode: Mode, laptop, monkeypatch
) -> None:
    # so that the files do not count as recently changed
    monkeypatch.setattr("hai_sync.file_fingerprint.RACY_NS", -(10**12))
    laptop.write("a", "1")
    laptop.write("b", "1")
    await laptop.push()
    laptop.write("a", "2")
    (laptop.cluster / "b").write_text("2")
    assert (await laptop.sync(mode, by_size=True)).in_sync
    assert laptop.on_cluster()["a"] == b"1"
    assert (await laptop.sync()).in_sync
    assert laptop.read() == laptop.on_cluster() == {"a": b"2", "b": b"2"}


async def test_files_wrongly_assumed_equal_become_a_conflict(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "1")
    await one.push()
    two.write("a", "2")
    assert (await two.push(by_size=True)).in_sync
    assert [each.path for each in (await two.push()).outcome.conflicts] == ["a"]


async def test_only_changed_chunks_of_a_large_file_are_sent(laptop) -> None:
    laptop.write("big", DATA)
    assert (await laptop.push()).wire_bytes > 5 << 20
    laptop.write("big", DATA[: 1 << 20] + b"x" * 4096 + DATA[1 << 20 :])
    report = await laptop.push()
    assert report.wire_bytes < 1 << 20
    assert laptop.on_cluster() == laptop.read()


async def test_a_push_refused_at_its_end_leaves_the_base_unchanged(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a")
    await one.sync()
    await two.sync()
    two.write("b")
    await two.push()
    before = one.session.index.fact("generation")
    one.write("c")
    # so that the client does not ask for the revision; the server refuses the commit
    one.session.hint(["c"])
    report = await one.session.sync(SyncOptions(Rules(Mode.PUSH), scan_remote=False))
    assert report.revision == 3
    assert one.session.index.fact("generation") != before
    assert one.session.index.base().keys() == {"a", "c"}
    assert (await one.sync()).in_sync
    assert one.read() == two.read() | {"c": b"x"}


async def test_a_failed_write_of_the_index_does_not_block_the_next_sync(
    laptop,
) -> None:
    laptop.write("a")
    await laptop.sync()
    other = sqlite3.connect(laptop.session.workspace.index_path)
    full = "CREATE TRIGGER full BEFORE INSERT ON facts BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    other.execute(full)
    laptop.write("b")
    laptop.session.hint(["b"])
    with pytest.raises(sqlite3.IntegrityError, match="disk full"):
        await laptop.session.sync(SyncOptions(Rules(Mode.PUSH)))
    other.execute("DROP TRIGGER full")
    other.close()
    assert (await laptop.session.sync(SyncOptions(Rules(Mode.PUSH)))).in_sync
    assert laptop.session.index.base().keys() == {"a", "b"}


async def test_two_laptops_exchange_changes(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "1")
    one.write("d/b", DATA)
    await one.sync()
    await two.sync()
    assert two.read() == one.read()
    (two.root / "a").unlink()
    two.write("d/c", "3")
    await two.sync()
    await one.sync()
    assert one.read() == two.read() == {"d/b": DATA, "d/c": b"3"}


async def test_remote_changes_survive_a_push_and_are_pulled(laptop) -> None:
    laptop.write("train.py", "1")
    await laptop.push()
    (laptop.cluster / "out.txt").write_text("result")
    laptop.write("train.py", "2")
    await laptop.push()
    assert laptop.on_cluster() == {"train.py": b"2", "out.txt": b"result"}
    await laptop.pull()
    assert laptop.read() == laptop.on_cluster()


async def test_a_conflict_refuses_the_whole_sync(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "1")
    await one.sync()
    await two.sync()
    one.write("a", "one")
    two.write("a", "two")
    two.write("b", "other")
    await one.sync()
    report = await two.sync()
    assert report.refused is Refused.CONFLICTS
    assert [conflict.path for conflict in report.outcome.conflicts] == ["a"]
    assert two.on_cluster() == {"a": b"one"}
    assert two.read() == {"a": b"two", "b": b"other"}
    await two.sync(partial=True)
    assert two.on_cluster() == {"a": b"one", "b": b"other"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(Policy.LOCAL, {b"two"}), (Policy.REMOTE, {b"one"}), (Policy.KEEP_BOTH, {b"one", b"two"})],
)
async def test_a_policy_resolves_conflicts(laptops, policy, expected) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "one")
    await one.sync()
    two.write("a", "two")
    await two.sync(policy=policy)
    assert set(two.on_cluster().values()) == set(two.read().values()) == expected


async def test_an_overwritten_version_is_saved(laptop) -> None:
    laptop.write("a", "mine")
    await laptop.push()
    (laptop.cluster / "a").write_text("theirs")
    await laptop.pull()
    assert laptop.read() == {"a": b"theirs"}
    kept = VersionStore(laptop.session.workspace.versions_dir).find("a")
    assert kept is not None
    assert kept.read_text() == "mine"


async def test_contents_are_flushed_before_they_are_renamed(laptops, monkeypatch) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "content")
    await one.push()
    flushed: list[tuple[int, bool]] = []
    fsync = os.fsync

    def noting(file: int) -> None:
        flushed.append((os.fstat(file).st_ino, (two.root / "a").exists()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noting)
    await two.pull()
    assert ((two.root / "a").stat().st_ino, False) in flushed


async def test_many_contents_are_flushed_together(laptops, monkeypatch) -> None:
    one, two = await laptops("one"), await laptops("two")
    for number in range(20):
        one.write(f"f{number}", str(number))
    await one.push()
    before: list[dict[str, bytes]] = []
    original = flushing._flush_all
    monkeypatch.setattr(
        flushing, "_flush_all", lambda folder: before.append(two.read()) or original(folder)
    )
    await two.pull()
    assert before == [{}]
    assert two.read() == one.read()


async def test_a_full_disk_loses_no_old_version(laptop, monkeypatch) -> None:
    """An earlier attempt could not save the old version, and has left it in the temporary directory."""
    laptop.write("a", "1")
    await laptop.push()
    tree = (await laptop.session.remote.tree({}, 0))[1]
    applier = RemoteApplier(laptop.session.workspace, [Change("a", None, tree["a"])], {}, {}, 1)
    applier.temp_dir.mkdir()
    for name in ("held-1-1", "copy-1"):
        (applier.temp_dir / name).write_text("x")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(laptop.session.remote.rate_limit, "wait", full)
    with pytest.raises(HaiError, match="No space left"):
        await applier.fetch(laptop.session.remote, NullListener())
    assert [path.name for path in applier.temp_dir.iterdir()] == ["held-1-1"]


async def test_many_removals_require_the_option(laptop) -> None:
    for number in range(30):
        laptop.write(f"f{number}", str(number))
    await laptop.push()
    for number in range(29):
        (laptop.root / f"f{number}").unlink()
    assert (await laptop.push()).refused is Refused.REMOVALS
    assert len(laptop.on_cluster()) == 30
    assert (await laptop.push(many_removals=True)).in_sync
    assert len(laptop.on_cluster()) == 1


async def test_directories_do_not_count_as_removed_files(laptop) -> None:
    """Directories do not count as remaining files either."""
    laptop.write("/".join(["deep"] * 20 + ["f"]))
    for number in range(5):
        laptop.write(f"f{number}")
    await laptop.push()
    shutil.rmtree(laptop.root / "deep")
    assert (await laptop.push()).in_sync
    assert "deep" not in os.listdir(laptop.cluster)
    for number in range(15):
        laptop.write(f"few/{number}")
        laptop.write(f"empty/{number}/kept")
    await laptop.push()
    for folder in ("few", "empty"):
        shutil.rmtree(laptop.root / folder)
    assert len((await laptop.push()).withheld) == 30


async def test_a_partial_push_omits_suspicious_removals(laptop) -> None:
    for number in range(30):
        laptop.write(f"d/{number}", str(number))
    await laptop.push()
    shutil.rmtree(laptop.root / "d")
    laptop.write("d", "a file in its place")
    laptop.write("new", "1")
    report = await laptop.push(partial=True)
    assert (report.refused, len(report.withheld), report.in_sync) == (Refused.REMOVALS, 30, False)
    assert (len(laptop.on_cluster()), laptop.on_cluster()["new"]) == (31, b"1")
    assert (await laptop.push(many_removals=True)).in_sync
    assert laptop.on_cluster() == {"d": b"a file in its place", "new": b"1"}


async def test_ignoring_a_path_removes_nothing_remotely(laptop) -> None:
    laptop.write("a.log", "1")
    laptop.write("b", "2")
    await laptop.push()
    laptop.write(".haiignore", "*.log\n")
    report = await laptop.push()
    assert report.ignored == 1
    assert set(laptop.on_cluster()) == {"a.log", "b", ".haiignore"}
    laptop.write("a.log", "changed")
    await laptop.push()
    assert laptop.on_cluster()["a.log"] == b"1"


async def test_changed_ignore_rules_apply_at_once(laptop) -> None:
    laptop.write("x.bin", "1")
    laptop.write(".haiignore", "*.bin\n")
    await laptop.push()
    laptop.write(".haiignore", "\n")
    await laptop.push()
    assert "x.bin" in laptop.on_cluster()


async def test_include_and_exclude_select_paths(laptop) -> None:
    laptop.write("a.bin", "1")
    laptop.write("keep.bin", "2")
    await laptop.push(filter=Filter(include=("keep.bin",), exclude=("*.bin",)))
    assert laptop.on_cluster() == {"keep.bin": b"2"}


async def test_a_dry_run_changes_nothing(laptop) -> None:
    laptop.write("a", "1")
    report = await laptop.push(dry_run=True)
    assert [change.path for change in report.outcome.to_remote] == ["a"]
    assert laptop.on_cluster() == {}


async def test_problems_are_listed_and_the_rest_is_synced(laptop) -> None:
    laptop.write("a", "1")
    laptop.write("e\u0301", "1")
    os.mkfifo(laptop.root / "pipe")
    report = await laptop.push()
    assert set(report.problems) == {"e\u0301", "pipe"}
    assert set(laptop.on_cluster()) == {"a"}


async def test_equal_trees_without_a_base_are_in_sync(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    for each in (one, two):
        each.write("a", "same")
    await one.sync()
    report = await two.sync()
    assert (report.done, report.in_sync) == (0, True)


def not_a_database(index: Path) -> None:
    index.write_bytes(b"not a database")


def damaged_inside(index: Path) -> None:
    """Damage an index so that its first page is valid, and the table of files is not."""
    with closing(sqlite3.connect(index)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'seen'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with index.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


@pytest.mark.parametrize("damage", [not_a_database, damaged_inside, Path.unlink])
async def test_a_lost_index_removes_nothing(damage, laptop) -> None:
    laptop.write("a", "1")
    laptop.write("b", "1")
    await laptop.push()
    laptop.session.index.close()
    damage(laptop.session.workspace.index_path)
    (laptop.root / "a").unlink()
    report = await laptop.sync()
    assert report.in_sync
    assert laptop.read() == laptop.on_cluster() == {"a": b"1", "b": b"1"}


async def test_an_unreadable_index_is_not_treated_as_corrupt(laptop, monkeypatch) -> None:
    laptop.write("a", "1")
    await laptop.push()
    laptop.session.index.close()
    with monkeypatch.context() as patched:  # the error of a full disk
        patched.setattr("hai_sync.index._SCHEMA", "SELECT * FROM no_such_table")
        with pytest.raises(sqlite3.OperationalError):
            await laptop.push()
    (laptop.root / "a").unlink()
    await laptop.sync()
    assert laptop.on_cluster() == {}


async def test_an_unmounted_root_removes_nothing(laptop, tmp_path: Path) -> None:
    laptop.write("a", "1")
    await laptop.push()
    laptop.root.rename(tmp_path / "elsewhere")
    laptop.root.mkdir()
    with pytest.raises(Exception, match="missing or not mounted"):
        await laptop.push()
    assert laptop.on_cluster() == {"a": b"1"}


async def test_a_moved_directory_is_the_same_workspace(laptop, tmp_path: Path) -> None:
    laptop.write("a", "1")
    await laptop.push()
    laptop.root = laptop.root.rename(tmp_path / "moved")
    from hai_sync.workspace_dir import find_workspace

    laptop.session.workspace = find_workspace(laptop.root)
    assert (await laptop.push()).done == 0


async def test_an_edit_with_equal_size_and_time_is_noticed(laptop) -> None:
    """A second write within one step of the clock changes only the content."""
    laptop.write("a", "one")
    await laptop.push()
    before = (laptop.root / "a").stat()
    (laptop.root / "a").write_text("two")
    os.utime(laptop.root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    await laptop.push()
    assert laptop.on_cluster() == {"a": b"two"}


async def test_a_recreated_workspace_has_no_base(laptop) -> None:
    laptop.write("a", "1")
    await laptop.push()
    await laptop.session.remote.delete()
    await laptop.session.remote.create()
    report = await laptop.sync()
    assert report.in_sync
    assert laptop.read() == laptop.on_cluster() == {"a": b"1"}


async def test_a_changed_mode_sends_no_content(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("run", DATA)
    await one.sync()
    await two.sync()
    (one.root / "run").chmod(0o755)
    assert (await one.sync()).wire_bytes < 10_000
    await two.sync()
    assert os.access(two.root / "run", os.X_OK)


async def test_files_and_directories_replace_each_other(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "1")
    one.write("d/x", "2")
    await one.sync()
    await two.sync()
    (one.root / "a").unlink()
    one.write("a/y", "3")
    (one.root / "d/x").unlink()
    (one.root / "d").rmdir()
    one.write("d", "4")
    await one.sync()
    await two.sync()
    assert one.read() == two.read() == one.on_cluster() == {"a/y": b"3", "d": b"4"}


async def test_a_rename_needs_no_content(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", DATA)
    await one.sync()
    await two.sync()
    (one.root / "a").rename(one.root / "b")
    assert (await one.sync()).wire_bytes < 200_000
    await two.sync()
    assert two.read() == {"b": DATA}


async def test_a_removed_directory_with_ignored_files_is_kept(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("d/x", "1")
    await one.sync()
    await two.sync()
    two.write("d/__pycache__/m.pyc", "cache")
    (one.root / "d/x").unlink()
    (one.root / "d").rmdir()
    await one.sync()
    await two.sync()
    assert two.read() == {"d/__pycache__/m.pyc": b"cache"}


async def test_force_overwrites_what_differs(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "one")
    await one.push()
    two.write("a", "two")
    rules = Rules(Mode.PUSH, Policy.LOCAL, overwrite=True)
    await two.session.sync(SyncOptions(rules))
    assert two.on_cluster() == {"a": b"two"}


async def test_a_sync_can_be_restricted_to_paths(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("d/a", "1")
    one.write("e/b", "2")
    await one.sync()
    await two.session.sync(SyncOptions(Rules(Mode.PULL), paths=("d",)))
    assert two.read() == {"d/a": b"1"}


async def test_a_link_changed_on_both_sides_is_a_conflict(laptop) -> None:
    (laptop.root / "latest").symlink_to("a")
    await laptop.push()
    theirs, ours = laptop.cluster / "latest", laptop.root / "latest"
    for link, target in ((theirs, "b"), (ours, "c")):
        link.unlink()
        link.symlink_to(target)
    report = await laptop.push()
    assert report.refused is Refused.CONFLICTS
    assert os.readlink(theirs) == "b"


async def test_no_temporary_files_are_left(laptop) -> None:
    (laptop.cluster / "a").write_bytes(DATA)
    (laptop.cluster / "b").write_text("small")
    private_dir = laptop.session.workspace.private_dir
    (private_dir / "tmp").mkdir()
    (private_dir / "tmp" / f"{'0' * 64}.part").write_text("of a broken download")
    assert (await laptop.pull()).in_sync
    assert not (private_dir / "tmp").exists()


async def test_the_announced_download_size_is_correct(laptops) -> None:
    """Otherwise the remaining time would be wrong: contents that exist locally are not downloaded."""
    one, two = await laptops("one"), await laptops("two")
    two.write("here", "1" * 1000)
    await two.push()
    await one.pull()
    half = random.Random(1).randbytes(500_000)
    for path, content in (("half", half), ("twin", half), ("new", "2" * 70), ("copy", "1" * 1000)):
        one.write(path, content)
    await one.push()
    part = two.session.workspace.private_dir / "tmp" / f"{compute_digest(half).hex()}.part"
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(half[:400_000])
    two.session.listener = recorded = RecordingListener()
    assert (await two.session.sync(SyncOptions(Rules(Mode.PULL)))).in_sync
    assert recorded.stages["download"] == recorded.arrived["download"] == (2, 100_070)


class RecordingListener:
    """Records the announced and the completed files and bytes of each stage."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[int, int]] = {}
        self.arrived: dict[str, tuple[int, int]] = {}
        self._name = ""

    def stage(self, name: str, files: int, size: int) -> None:
        self._name = name
        self.stages[name], self.arrived[name] = (files, size), (0, 0)

    def progress(self, files: int, size: int) -> None:
        before = self.arrived[self._name]
        self.arrived[self._name] = before[0] + files, before[1] + size


async def test_a_keep_both_push_creates_one_copy(laptops) -> None:
    one, two = await laptops("one"), await laptops("two")
    one.write("a", "theirs")
    await one.push()
    two.write("a", "ours")
    for _ in range(3):
        await two.sync(Mode.PUSH, Policy.KEEP_BOTH)
    assert sorted(two.on_cluster().values()) == [b"ours", b"theirs"]
    two.write("a", "ours, later")
    for _ in range(2):
        await two.sync(Mode.PUSH, Policy.KEEP_BOTH)
    assert sorted(two.on_cluster().values()) == [b"ours", b"ours, later", b"theirs"]


def breaking(laptop, times: int, reason: str = "") -> list[int]:
    """Break the connection in so many pushes, each after one message. The list counts them."""
    connection, broken = laptop.session.remote.connection, [0]
    original = connection.duplex

    async def duplex(call, requests):
        if broken[0] < times:
            broken[0] += 1
            await anext(requests)
            raise Unreachable("the connection was lost", reason=reason)
        async for answer in original(call, requests):
            yield answer

    connection.duplex = duplex
    return broken


@pytest.mark.parametrize("reason", ["UNREACHABLE", "NO_LEADER", "DEPOSED", "STORAGE_BUSY"])
async def test_a_push_continues_after_a_broken_connection(reason: str, laptop, monkeypatch) -> None:
    monkeypatch.setattr("hai_sync.session.session.delays", lambda: iter([0.0] * 99))
    broken = breaking(laptop, 3, reason)
    laptop.write("a", "1")
    laptop.write("big", DATA)
    assert (await laptop.push()).in_sync
    assert (broken, laptop.on_cluster()) == ([3], laptop.read())


async def test_a_push_is_not_repeated_after_a_permanent_error(laptop) -> None:
    broken = breaking(laptop, 99, "STORAGE_FAILS")
    laptop.write("a", "1")
    with pytest.raises(Unreachable):
        await laptop.push()
    assert broken == [1]


async def test_the_attempts_of_a_push_are_limited(laptop, monkeypatch) -> None:
    monkeypatch.setattr("hai_sync.session.session.delays", lambda: iter([0.0] * 99))
    broken = breaking(laptop, 99)
    laptop.write("a", "1")
    with pytest.raises(Unreachable):
        await laptop.push()
    assert 1 < broken[0] < 20


@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.PULL])
async def test_moving_all_files_is_no_mass_removal(mode: Mode, laptop) -> None:
    for number in range(30):
        laptop.write(f"d/{number}", str(number))
    await laptop.push()
    root = laptop.root if mode is Mode.PUSH else laptop.cluster
    (root / "d").rename(root / "moved")
    assert (await laptop.sync(mode)).in_sync
    assert laptop.read() == laptop.on_cluster() == {f"moved/{n}": b"%d" % n for n in range(30)}


async def test_new_files_do_not_hide_a_mass_removal(laptop) -> None:
    for number in range(30):
        laptop.write(f"d/{number}", "old")
    await laptop.push()
    for number in range(30):
        (laptop.root / f"d/{number}").unlink()
        laptop.write(f"new/{number}", "new content")
    assert (await laptop.push()).refused is Refused.REMOVALS
