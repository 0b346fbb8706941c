"""What programs write into a workspace that a client follows becomes a revision by itself, and the client is told."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from hai.host.inotify import Inotify
from hai.v1 import workspace_pb2 as pb
from hai_backend.api.workspaces import cluster_changes
from hai_backend.api.workspaces.cluster_changes import ClusterChangeWatcher
from hai_backend.api.workspaces.trees import Trees
from hai_backend.workspaces.registry import OpenWorkspace
from hai_backend.workspaces.storage import tree_events
from hai_backend.workspaces.storage.directory_scan import DirectoryScan
from tests.backend.workspaces.conftest import Here
from tests.support.workspaces import Pusher, file

SECONDS = 20.0  # for machines that have much else to do
MOST_EVENTS = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
Change = Callable[[Path], object]

pytestmark = pytest.mark.skipif(not Path("/proc/sys/fs/inotify").is_dir(), reason="Linux only")


class Follower:
    """A client that follows a workspace, and asks for revisions that it was told of only: that looks at no file."""

    def __init__(self, pusher: Pusher, tree: Path) -> None:
        self.pusher = pusher
        self.tree = tree
        self.revision = 0
        self._next_change = asyncio.Event()

    async def follow(self) -> None:
        async with aclosing(self.pusher.client.workspaces.watch(self.pusher.name)) as answers:
            async for answer in answers:
                self.revision = answer.revision.number
                self._next_change.set()

    async def until(self, true: Callable[[int], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not true(self.revision):
                self._next_change.clear()
                await self._next_change.wait()

    async def until_same(self) -> None:
        """Until the newest revision is as the tree is."""
        expected = on_disk(self.tree)
        async with asyncio.timeout(SECONDS):
            self._next_change.clear()
            while await self._entries() != expected:
                await self._next_change.wait()
                self._next_change.clear()

    async def _entries(self) -> dict[str, object]:
        if not self.revision:
            return {}
        entries = await self.pusher.tree(self.revision)
        return {path: _state(entry) for path, entry in entries.items()}


def _state(entry: pb.WorkspaceEntry) -> object:
    if entry.kind == pb.ENTRY_KIND_DIRECTORY:
        return "directory"
    return entry.target or (entry.size, entry.executable)


def on_disk(tree: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(tree):
        for path in (Path(folder, name) for name in (*folders, *files)):
            name, status = str(path.relative_to(tree)), path.lstat()
            if path.is_symlink():
                found[name] = os.readlink(path)
            else:
                file = (status.st_size, bool(status.st_mode & 0o100))
                found[name] = "directory" if path.is_dir() else file
    return found


@asynccontextmanager
async def followed(here: Here, name: str = "w") -> AsyncIterator[Follower]:
    """A workspace with something in it, watched."""
    pusher = await here.pusher(name)
    await pusher.push({"d/a": b"1", "d/e/b": b"22", "top": b"333"})
    follower = Follower(pusher, here.files(name))
    following = asyncio.create_task(follower.follow())
    try:
        await follower.until(bool)
        (follower.tree / "begun").touch()
        await follower.until_same()
        yield follower
    finally:
        following.cancel()
        await asyncio.wait({following})


@pytest.fixture
def only_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found by a look at everything but at the beginning."""
    monkeypatch.setattr(tree_events, "POLL_SECONDS", 3600.0)


def _replace_directory(tree: Path) -> None:
    (tree / "d").rename(tree / "old")
    (tree / "d" / "new").mkdir(parents=True)
    (tree / "d" / "new" / "file").write_text("new")


def _directory_to_file(tree: Path) -> None:
    (tree / "d" / "e" / "b").write_text("told of before it goes")
    shutil.rmtree(tree / "d")
    (tree / "d").write_text("a file")


def _directory_to_link(tree: Path) -> None:
    (tree / "d" / "a").write_text("told of before it goes")
    (tree / "d").rename(tree / "elsewhere")
    (tree / "d").symlink_to("elsewhere")


def _file_to_directory(tree: Path) -> None:
    (tree / "top").unlink()
    (tree / "top" / "inner").mkdir(parents=True)
    (tree / "top" / "inner" / "x").write_text("x")


def _append(tree: Path) -> None:
    with (tree / "d" / "e" / "b").open("a") as file:
        file.write("more")


def _deep(tree: Path) -> None:
    (tree / "n" / "e" / "w").mkdir(parents=True)
    (tree / "n" / "e" / "w" / "file").write_text("deep")


def _save_as_editors_do(tree: Path) -> None:
    (tree / "d" / ".a.swp").write_text("saved by an editor")
    (tree / "d" / ".a.swp").rename(tree / "d" / "a")


def _many(tree: Path) -> None:
    (tree / "many").mkdir()
    for number in range(300):
        (tree / "many" / f"f{number}").write_text("x" * number)


CHANGES: list[tuple[str, Change]] = [
    ("a new file", lambda tree: (tree / "new").write_text("new")),
    ("a file in place", lambda tree: (tree / "d/a").write_text("longer")),
    ("more at its end", _append),
    ("as editors save", _save_as_editors_do),
    ("executable", lambda tree: (tree / "top").chmod(0o755)),
    ("a file goes", lambda tree: (tree / "d/a").unlink()),
    ("a file moves", lambda tree: (tree / "top").rename(tree / "d/e/moved")),
    ("a directory moves", lambda tree: (tree / "d").rename(tree / "moved")),
    ("a tree goes", lambda tree: shutil.rmtree(tree / "d")),
    ("a deep new tree", _deep),
    ("another directory of its name", _replace_directory),
    ("a file where a directory was", _directory_to_file),
    ("a link where a directory was", _directory_to_link),
    ("a directory where a file was", _file_to_directory),
    ("a link", lambda tree: (tree / "link").symlink_to("d/a")),
    ("an odd name", lambda tree: (tree / "d" / "ü \n'\"%").write_text("odd")),
    ("many files", _many),
]


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
async def test_a_change_is_told_of(here: Here, name: str, change: Change, only_events) -> None:
    async with followed(here) as follower:
        change(follower.tree)
        await follower.until_same()


async def test_all_changes_one_after_the_other(here: Here, only_events) -> None:
    async with followed(here) as follower:
        for _, change in CHANGES:
            begin_anew(follower.tree)
            change(follower.tree)
        await follower.until_same()


async def test_so_it_is_where_storage_tells_of_nothing(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_events, "file_system", lambda path: "nfs4")
    monkeypatch.setattr(tree_events, "Inotify", None)
    monkeypatch.setattr(tree_events, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(cluster_changes, "MIN_SCAN_INTERVAL_SECONDS", 0.01)
    async with followed(here) as follower:
        for _, change in CHANGES:
            begin_anew(follower.tree)
            change(follower.tree)
            await follower.until_same()


def begin_anew(tree: Path) -> None:
    """What the workspace began with, and nothing else."""
    for path in tree.iterdir():
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
    (tree / "d" / "e").mkdir(parents=True)
    for path, text in (("d/a", "1"), ("d/e/b", "22"), ("top", "333")):
        (tree / path).write_text(text)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("ext4", True),
        ("xfs", True),
        ("tmpfs", True),
        ("overlay", True),
        ("fuseblk", True),
        ("nfs", False),
        ("nfs4", False),
        ("ceph", False),
        ("lustre", False),
        ("fuse", False),
        ("fuse.juicefs", False),
        ("fuse.sshfs", False),
    ],
)
def test_which_storage_tells_of_changes(kind: str, told: bool, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tree_events, "file_system", lambda path: kind)
    assert tree_events._kernel_reports_all(tmp_path) == told


def test_the_file_system_of_a_path() -> None:
    assert tree_events.file_system(Path("/proc/self")) == "proc"
    assert tree_events.file_system(Path("/does/not/exist")) == ""


async def test_names_that_are_no_text_are_passed_over(here: Here, only_events) -> None:
    async with followed(here) as follower:
        (follower.tree / os.fsdecode(b"caf\xe9")).write_text("no text")
        (follower.tree / "d" / os.fsdecode(b"\xff")).mkdir()
        (follower.tree / "text").write_text("1")
        await follower.until(lambda revision: revision > 2)
        assert {"text"} == (await follower.pusher.tree(follower.revision)).keys() - {
            *("d", "d/a", "d/e", "d/e/b", "top", "begun")
        }


async def test_what_is_private_to_the_cluster_is_not_told_of(here: Here, only_events) -> None:
    async with followed(here) as follower:
        (follower.tree / ".hfai" / "deep").mkdir(parents=True)
        (follower.tree / ".hfai" / "deep" / "x").write_text("private")
        (follower.tree / "seen").touch()
        before = follower.revision
        await follower.until(lambda revision: revision > before)
        assert ".hfai" not in await follower.pusher.tree(follower.revision)


async def test_nothing_outside_is_watched_or_told_of(here: Here, tmp_path, only_events) -> None:
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    async with followed(here) as follower:
        (follower.tree / "out").symlink_to(tmp_path / "outside")
        (follower.tree / "first").touch()
        before = follower.revision
        await follower.until(lambda revision: revision > before)
        told = follower.revision
        (tmp_path / "outside" / "inner" / "x").write_text("1")
        (follower.tree / "last").touch()
        await follower.until(lambda revision: revision > told)
        assert not any(path.startswith("out") for path in await follower.pusher.tree(told + 1))


async def test_events_that_were_lost_are_made_up_for(
    here_in_memory: Here, monkeypatch: pytest.MonkeyPatch, only_events
) -> None:
    async with followed(here_in_memory) as follower:
        for name in ("x", "y") * MOST_EVENTS:  # the loop stands still meanwhile
            (follower.tree / name).touch()
        (follower.tree / "late").mkdir()
        (follower.tree / "late" / "file").write_text("1")
        await follower.until_same()
        (follower.tree / "late" / "file").write_text("it is watched again")
        await follower.until_same()


async def test_the_limit_of_watches_is_no_end(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(watching: Inotify, top: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Inotify, "add", add)
    monkeypatch.setattr(tree_events, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(cluster_changes, "MIN_SCAN_INTERVAL_SECONDS", 0.01)
    async with followed(here) as follower:
        (follower.tree / "new").write_text("1")
        await follower.until_same()


async def test_our_own_pushes_are_not_read_again(
    here: Here, monkeypatch: pytest.MonkeyPatch, only_events
) -> None:
    """The kernel tells of what a push did as well. Of files that were saved just now, too."""
    read = set[str]()
    real = DirectoryScan._scan_file

    def noted(seer: DirectoryScan, folder: str, descriptor: int, name: str, *more: Any) -> Any:
        read.add(name)
        return real(seer, folder, descriptor, name, *more)

    monkeypatch.setattr(DirectoryScan, "_scan_file", noted)
    contents = {f"d/f{number}": b"%d" % number for number in range(50)}
    entries = [file(path, data) for path, data in contents.items()]
    async with followed(here) as follower:
        await follower.pusher.lease()
        read.clear()
        for entry in entries:
            entry.mtime_ns = time.time_ns() - 100_000_000
        contents_by_digest = {blake3(data).digest(): data for data in contents.values()}
        await follower.pusher.send(entries, contents_by_digest)
        (follower.tree / "after").write_text("1")
        await follower.until_same()
    assert read - {"begun"} == {"after"}


async def test_nobody_looks_where_nobody_follows(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_events, "POLL_SECONDS", 0.01)
    looks = list[str]()
    real = Trees.scan

    async def noted(trees: Trees, room: OpenWorkspace, *more: Any) -> Any:
        looks.append(room.key[1])
        return await real(trees, room, *more)

    monkeypatch.setattr(Trees, "scan", noted)
    other = await here.pusher("other")
    await other.push({"a": b"1"})
    async with followed(here) as one, followed(here, "second") as two:
        for follower in (one, two):
            (here.files("other") / "new").write_text("1")
            (follower.tree / "new").write_text("1")
            await follower.until_same()
        assert {*looks} == {"w", "second"}
    async with asyncio.timeout(SECONDS):
        while watches():  # noqa: ASYNC110 - the server tells nobody that it has noticed
            await asyncio.sleep(0.001)
    looks.clear()
    (one.tree / "later").write_text("1")
    await other.tree(1)
    assert looks == []


def watches() -> list[str]:
    """Of workspaces that the server follows."""
    return [
        str(task)
        for task in asyncio.all_tasks()
        if ClusterChangeWatcher._watch.__qualname__ in str(task)
    ]


async def test_many_followers_have_one_watch(here: Here, monkeypatch, only_events) -> None:
    made = list[str]()

    def noted(root: str, is_leaf: Callable[[str], bool]) -> Inotify:
        made.append(root)
        return Inotify(root, is_leaf)

    monkeypatch.setattr(tree_events, "Inotify", noted)
    async with followed(here) as follower:
        others = [Follower(follower.pusher, follower.tree) for _ in range(5)]
        following = [asyncio.create_task(each.follow()) for each in others]
        (follower.tree / "new").write_text("1")
        for each in (follower, *others):
            await each.until_same()
        for task in following:
            task.cancel()
        await asyncio.wait(following)
        (follower.tree / "newer").write_text("1")
        await follower.until_same()
    assert len(made) == 1


async def test_a_followed_workspace_can_be_removed(here: Here) -> None:
    async with followed(here) as follower:
        await here.client.workspaces.delete("w")
        assert not follower.tree.exists()
