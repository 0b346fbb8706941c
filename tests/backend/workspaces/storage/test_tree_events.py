"""Changes by programs in a workspace that a client follows become revisions, and the client is notified."""

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
from tests.backend.workspaces.conftest import WorkspaceService
from tests.support.workspaces import Pusher, file

SECONDS = 20.0  # machines may be busy
MOST_EVENTS = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
Change = Callable[[Path], object]

pytestmark = pytest.mark.skipif(not Path("/proc/sys/fs/inotify").is_dir(), reason="Linux only")


class Follower:
    """A client that follows a workspace, and reads only revisions that it was notified of, which causes no scan."""

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
        """Wait until the newest revision equals the tree."""
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
async def follow_workspace(service: WorkspaceService, name: str = "w") -> AsyncIterator[Follower]:
    """Create a workspace with some files, and follow it."""
    pusher = await service.pusher(name)
    await pusher.push({"d/a": b"1", "d/e/b": b"22", "top": b"333"})
    follower = Follower(pusher, service.files(name))
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
    """Let only the first scan be a complete one."""
    monkeypatch.setattr(tree_events, "POLL_SECONDS", 3600.0)


def _replace_directory(tree: Path) -> None:
    (tree / "d").rename(tree / "old")
    (tree / "d" / "new").mkdir(parents=True)
    (tree / "d" / "new" / "file").write_text("new")


def _directory_to_file(tree: Path) -> None:
    (tree / "d" / "e" / "b").write_text("reported before its removal")
    shutil.rmtree(tree / "d")
    (tree / "d").write_text("a file")


def _directory_to_link(tree: Path) -> None:
    (tree / "d" / "a").write_text("reported before its removal")
    (tree / "d").rename(tree / "elsewhere")
    (tree / "d").symlink_to("elsewhere")


def _file_to_directory(tree: Path) -> None:
    (tree / "top").unlink()
    (tree / "top" / "inner").mkdir(parents=True)
    (tree / "top" / "inner" / "x").write_text("x")


def _append(tree: Path) -> None:
    with (tree / "d" / "e" / "b").open("a") as file:
        file.write("more")


def _make_deep_tree(tree: Path) -> None:
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
    ("a deep new tree", _make_deep_tree),
    ("another directory of its name", _replace_directory),
    ("a file where a directory was", _directory_to_file),
    ("a link where a directory was", _directory_to_link),
    ("a directory where a file was", _file_to_directory),
    ("a link", lambda tree: (tree / "link").symlink_to("d/a")),
    ("an odd name", lambda tree: (tree / "d" / "ü \n'\"%").write_text("odd")),
    ("many files", _many),
]


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
async def test_a_change_is_reported(
    service: WorkspaceService, name: str, change: Change, only_events
) -> None:
    async with follow_workspace(service) as follower:
        change(follower.tree)
        await follower.until_same()


async def test_consecutive_changes_are_reported(service: WorkspaceService, only_events) -> None:
    async with follow_workspace(service) as follower:
        for _, change in CHANGES:
            reset_tree(follower.tree)
            change(follower.tree)
        await follower.until_same()


async def test_changes_are_reported_without_kernel_events(
    service: WorkspaceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_events, "file_system", lambda path: "nfs4")
    monkeypatch.setattr(tree_events, "Inotify", None)
    monkeypatch.setattr(tree_events, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(cluster_changes, "MIN_SCAN_INTERVAL_SECONDS", 0.01)
    async with follow_workspace(service) as follower:
        for _, change in CHANGES:
            reset_tree(follower.tree)
            change(follower.tree)
            await follower.until_same()


def reset_tree(tree: Path) -> None:
    """Restore the first state of the workspace."""
    for path in tree.iterdir():
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
    (tree / "d" / "e").mkdir(parents=True)
    for path, text in (("d/a", "1"), ("d/e/b", "22"), ("top", "333")):
        (tree / path).write_text(text)


@pytest.mark.parametrize(
    ("kind", "is_complete"),
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
def test_file_systems_with_complete_kernel_events(
    kind: str, is_complete: bool, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(tree_events, "file_system", lambda path: kind)
    assert tree_events._kernel_reports_all(tmp_path) == is_complete


def test_the_file_system_of_a_path_is_found() -> None:
    assert tree_events.file_system(Path("/proc/self")) == "proc"
    assert tree_events.file_system(Path("/does/not/exist")) == ""


async def test_names_that_are_not_text_are_skipped(service: WorkspaceService, only_events) -> None:
    async with follow_workspace(service) as follower:
        (follower.tree / os.fsdecode(b"caf\xe9")).write_text("no text")
        (follower.tree / "d" / os.fsdecode(b"\xff")).mkdir()
        (follower.tree / "text").write_text("1")
        await follower.until(lambda revision: revision > 2)
        assert {"text"} == (await follower.pusher.tree(follower.revision)).keys() - {
            *("d", "d/a", "d/e", "d/e/b", "top", "begun")
        }


async def test_private_entries_of_the_server_are_not_reported(
    service: WorkspaceService, only_events
) -> None:
    async with follow_workspace(service) as follower:
        (follower.tree / ".hfai" / "deep").mkdir(parents=True)
        (follower.tree / ".hfai" / "deep" / "x").write_text("private")
        (follower.tree / "seen").touch()
        before = follower.revision
        await follower.until(lambda revision: revision > before)
        assert ".hfai" not in await follower.pusher.tree(follower.revision)


async def test_nothing_outside_the_tree_is_watched(
    service: WorkspaceService, tmp_path, only_events
) -> None:
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    async with follow_workspace(service) as follower:
        (follower.tree / "out").symlink_to(tmp_path / "outside")
        (follower.tree / "first").touch()
        before = follower.revision
        await follower.until(lambda revision: revision > before)
        last_revision = follower.revision
        (tmp_path / "outside" / "inner" / "x").write_text("1")
        (follower.tree / "last").touch()
        await follower.until(lambda revision: revision > last_revision)
        assert not any(
            path.startswith("out") for path in await follower.pusher.tree(last_revision + 1)
        )


async def test_lost_events_cause_a_complete_scan(
    service_in_memory: WorkspaceService, monkeypatch: pytest.MonkeyPatch, only_events
) -> None:
    async with follow_workspace(service_in_memory) as follower:
        for name in ("x", "y") * MOST_EVENTS:  # the event loop does not run meanwhile
            (follower.tree / name).touch()
        (follower.tree / "late").mkdir()
        (follower.tree / "late" / "file").write_text("1")
        await follower.until_same()
        (follower.tree / "late" / "file").write_text("it is watched again")
        await follower.until_same()


async def test_at_the_limit_of_watches_the_tree_is_scanned(
    service: WorkspaceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(watching: Inotify, top: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Inotify, "add", add)
    monkeypatch.setattr(tree_events, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(cluster_changes, "MIN_SCAN_INTERVAL_SECONDS", 0.01)
    async with follow_workspace(service) as follower:
        (follower.tree / "new").write_text("1")
        await follower.until_same()


async def test_files_of_a_push_are_not_read_again(
    service: WorkspaceService, monkeypatch: pytest.MonkeyPatch, only_events
) -> None:
    """The kernel also reports the changes of a push, even of files that were saved just now."""
    read = set[str]()
    real = DirectoryScan._scan_file

    def recorded(
        scanner: DirectoryScan, folder: str, descriptor: int, name: str, *more: Any
    ) -> Any:
        read.add(name)
        return real(scanner, folder, descriptor, name, *more)

    monkeypatch.setattr(DirectoryScan, "_scan_file", recorded)
    contents = {f"d/f{number}": b"%d" % number for number in range(50)}
    entries = [file(path, data) for path, data in contents.items()]
    async with follow_workspace(service) as follower:
        await follower.pusher.lease()
        read.clear()
        for entry in entries:
            entry.mtime_ns = time.time_ns() - 100_000_000
        contents_by_digest = {blake3(data).digest(): data for data in contents.values()}
        await follower.pusher.send(entries, contents_by_digest)
        (follower.tree / "after").write_text("1")
        await follower.until_same()
    assert read - {"begun"} == {"after"}


async def test_a_workspace_without_followers_is_not_scanned(
    service: WorkspaceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_events, "POLL_SECONDS", 0.01)
    scanned = list[str]()
    real = Trees.scan

    async def recorded(trees: Trees, workspace: OpenWorkspace, *more: Any) -> Any:
        scanned.append(workspace.key[1])
        return await real(trees, workspace, *more)

    monkeypatch.setattr(Trees, "scan", recorded)
    other = await service.pusher("other")
    await other.push({"a": b"1"})
    async with follow_workspace(service) as one, follow_workspace(service, "second") as two:
        for follower in (one, two):
            (service.files("other") / "new").write_text("1")
            (follower.tree / "new").write_text("1")
            await follower.until_same()
        assert {*scanned} == {"w", "second"}
    async with asyncio.timeout(SECONDS):
        while list_watches():  # noqa: ASYNC110 - the server reports no event for this
            await asyncio.sleep(0.001)
    scanned.clear()
    (one.tree / "later").write_text("1")
    await other.tree(1)
    assert scanned == []


def list_watches() -> list[str]:
    """Return the watches of the server."""
    return [
        str(task)
        for task in asyncio.all_tasks()
        if ClusterChangeWatcher._watch.__qualname__ in str(task)
    ]


async def test_all_followers_share_one_watch(
    service: WorkspaceService, monkeypatch, only_events
) -> None:
    made = list[str]()

    def recorded(root: str, is_leaf: Callable[[str], bool]) -> Inotify:
        made.append(root)
        return Inotify(root, is_leaf)

    monkeypatch.setattr(tree_events, "Inotify", recorded)
    async with follow_workspace(service) as follower:
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


async def test_a_followed_workspace_can_be_deleted(service: WorkspaceService) -> None:
    async with follow_workspace(service) as follower:
        await service.client.workspaces.delete("w")
        assert not follower.tree.exists()
