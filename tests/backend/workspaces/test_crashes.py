"""The server crashes at every step on storage of a push, a scan, a restore, a checkout and a garbage collection.

Each operation runs in a child process, which ends (as by SIGKILL) at its n-th step. Then another process opens the
workspace, checks it, and completes the operation. Acknowledged changes must exist, others exist completely or not at
all, and every version is in the tree or can be restored.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from hai_backend.domain.workspace import Chunk, Entry, EntryKind
from hai_backend.workspaces import checkouts, read, restore
from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces.contents import closing_descriptor
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push import apply
from hai_backend.workspaces.push import push as pushing
from hai_backend.workspaces.push.push import Push
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import tree_scan

STEPS = {
    "open",
    "os.rename",
    "os.link",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.symlink",
    "os.utime",
    "os.chmod",
    "shutil.rmtree",
}
KILLED, CHANGES = 77, 0
MEMORY = Path("/dev/shm")
Tree = Mapping[str, bytes | None]  # None: a directory
BIG = b"".join(blake3(bytes([i])).digest(1 << 20) for i in range(3))

FIRST: Tree = {
    "a/f": b"one",
    "a/g": b"two",
    "b/c/d": b"three",
    "same": b"two",
    "gone": b"x",
    "big": BIG,
}
SECOND: Tree = {
    "a/f": b"one, changed",
    "a/g/now": b"a directory",
    "new/in/it": b"a directory that is laid out",
    "new/in/other": b"two",
    "b": b"a file now",
    "same": b"two",
    "moved": b"x",
    "copy": b"two",
    "big": BIG[:1000] + b"in between" + BIG[1000:],
}


def entries(now: Tree, before: Tree) -> list[Entry]:
    file_entries = [
        Entry(
            path, EntryKind.FILE, False, len(data), 1_600_000_000_000_000_000, blake3(data).digest()
        )
        for path, data in now.items()
        if data is not None
    ]
    old_paths = {*before, *(f for path in before for f in folders(path))}
    new_paths = {*now, *(f for path in now for f in folders(path))}
    file_entries += [Entry(path, EntryKind.DIRECTORY) for path in new_paths - {*now}]
    return file_entries + [Entry(path, EntryKind.NONE) for path in sorted(old_paths - new_paths)]


def folders(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def push(files: WorkspaceFiles, now: Tree, before: Tree, base: int) -> int:
    push = Push(files, 1)
    contents_by_digest = {blake3(data).digest(): data for data in now.values() if data is not None}
    for missing in push.add_changes(entries(now, before)):
        data = contents_by_digest[missing]
        if len(data) <= 1 << 20:
            push.receive([ContentsMessage([missing], [len(data)], data, False)])
            continue
        pieces = [data[i : i + 700_000] for i in range(0, len(data), 700_000)]
        cut = {blake3(piece).digest(): piece for piece in pieces}
        recipe = [Chunk(blake3(piece).digest(), len(piece)) for piece in pieces]
        for chunk in push.add_recipe(missing, recipe, last=True):
            push.receive([ContentsMessage([chunk], [len(cut[chunk])], cut[chunk], False)])
    number = push.commit(base, Author("me", float(base + 1)), allow_many_removals=True).number
    push.close()
    return number


def reopen(root: Path) -> WorkspaceFiles:
    files = WorkspaceFiles(root, 0)
    apply.recover(files)
    return files


def read_disk(root: Path) -> dict[str, bytes]:
    tree = root / "files"
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


def read_revision(files: WorkspaceFiles, number: int) -> dict[str, bytes]:
    found = {}
    for page in files.index.iterate_tree(number):
        for entry in page:
            if entry.kind is EntryKind.FILE:
                source = read.RevisionFiles(files, number)
                with (
                    source.open_tree() as tree,
                    closing_descriptor(source.open(tree, entry.path)) as file,
                ):
                    found[entry.path] = os.pread(file, entry.size + 1, 0)
    return found


def run_until_step(step: int, operation: Callable[[], Any], below: Path) -> int:
    """Run an operation in a child process that ends at a step. Return the exit code of the child."""
    child = os.fork()
    if child == 0:
        remaining = step

        def count_step() -> None:
            nonlocal remaining
            remaining -= 1
            if remaining == 0:
                os._exit(KILLED)

        def count(event: str, args: tuple[Any, ...]) -> None:
            if event in STEPS and not (event == "open" and not _writes(args)):
                count_step()

        def connect(*args: Any, **more: Any) -> sqlite3.Connection:
            index = sqlite3.Connection(*args, **more)
            index.set_trace_callback(
                lambda statement: count_step() if statement == "COMMIT" else None
            )
            return index

        try:
            sys.addaudithook(count)
            sqlite3.connect = connect  # type: ignore[assignment]
            operation()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(CHANGES)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _writes(args: tuple[Any, ...]) -> bool:
    return isinstance(args[2], int) and bool(args[2] & os.O_CREAT)


def crash_at_every_step(
    root: Path, prepare: Callable[[Path], None], operation: Callable[[Path], Any]
) -> Any:
    """Yield each step of an operation, with the workspace as it is after a crash at this step."""
    step = 0
    while True:
        step += 1
        root_path = root / str(step) / "u" / "w"
        make_directories(root_path, 0)
        prepare(root_path)
        code = run_until_step(step, lambda: operation(root_path), root_path)  # noqa: B023 - it ends before the next step
        assert code in (KILLED, CHANGES), f"step {step} failed"
        yield step, root_path
        if code == CHANGES:
            return


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory if the machine has one: disks are slow."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture(params=["new directories", "incoming", "many threads"])
def content_paths(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways in which small files get to their paths. Few files use one of them only."""
    monkeypatch.setattr(pushing, "FEW_CONTENTS", 16 if request.param == "incoming" else 0)
    if request.param == "many threads":
        request.getfixturevalue("slow_storage")


@pytest.fixture(params=["one thread", "many threads"])
def threads(request: pytest.FixtureRequest) -> None:
    """Storage that is quick, and storage that is slow."""
    if request.param == "many threads":
        request.getfixturevalue("slow_storage")


def push_first(root_path: Path) -> None:
    files = reopen(root_path)
    push(files, FIRST, {}, 0)
    files.close()


@pytest.mark.usefixtures("content_paths")
def test_the_first_push_survives_a_crash_at_any_step(memory: Path) -> None:
    def operation(root_path: Path) -> None:
        push(reopen(root_path), FIRST, {}, 0)

    steps = 0
    for _, root_path in crash_at_every_step(memory, lambda root_path: None, operation):
        steps += 1
        files = reopen(root_path)
        newest = files.index.newest_revision().number
        assert read_disk(root_path) == (FIRST if newest else {})
        assert push(files, FIRST, {} if newest == 0 else FIRST, newest) == 1
        assert read_disk(root_path) == FIRST
        assert tree_scan.scan_tree(files, Author("tasks", 9.0)).number == 1
        files.close()
    assert steps > 25


@pytest.mark.usefixtures("content_paths")
def test_a_push_with_replacements_survives_a_crash_at_any_step(memory: Path) -> None:
    def operation(root_path: Path) -> None:
        push(reopen(root_path), SECOND, FIRST, 1)

    steps = 0
    for step, root_path in crash_at_every_step(memory, push_first, operation):
        steps += 1
        files = reopen(root_path)
        newest = files.index.newest_revision().number
        assert read_disk(root_path) == (SECOND if newest == 2 else FIRST), step
        assert read_revision(files, 1) == FIRST, step
        assert push(files, SECOND, FIRST if newest == 1 else SECOND, newest) == 2
        assert read_disk(root_path) == SECOND
        assert read_revision(files, 1) == FIRST
        assert tree_scan.scan_tree(files, Author("tasks", 9.0)).number == 2
        files.close()
    assert steps > 30


def test_files_removed_during_a_restart_can_be_pushed_again(memory: Path) -> None:
    """The index may list a content that was deleted before it became an object."""

    def operation(root_path: Path) -> None:
        push(reopen(root_path), SECOND, FIRST, 1)

    for step, root_path in crash_at_every_step(memory, push_first, operation):
        shutil.rmtree(root_path / "files")
        (root_path / "files").mkdir()
        files = reopen(root_path)
        now = tree_scan.scan_tree(files, Author("tasks", 9.0)).number
        current_entries = {
            entry.path: None for page in files.index.iterate_tree(now) for entry in page
        }
        push(files, FIRST, current_entries, now)
        assert read_disk(root_path) == FIRST, step
        files.close()


@pytest.mark.usefixtures("threads")
def test_a_scan_survives_a_crash_at_any_step(memory: Path) -> None:
    """A stat is recorded only after the revision with its digest is committed."""

    def change_by_program(root_path: Path) -> None:
        push_first(root_path)
        tree = root_path / "files"
        (tree / "a/f").write_bytes(b"by a program")
        (tree / "gone").unlink()
        (tree / "b/c/d").unlink()
        (tree / "b/c").rmdir()
        (tree / "b/c").write_bytes(b"a file now")
        (tree / "made").mkdir()
        (tree / "made/it").write_bytes(b"new")
        for path in tree.rglob("*"):
            os.utime(path, (1e9, 1e9))  # so that their stats prove that they are unchanged

    def scan_tree(root_path: Path) -> int:
        return tree_scan.scan_tree(reopen(root_path), Author("tasks", 2.0)).number

    for step, root_path in crash_at_every_step(memory, change_by_program, scan_tree):
        files = reopen(root_path)
        assert tree_scan.scan_tree(files, Author("tasks", 3.0)).number == 2
        assert read_revision(files, 2) == read_disk(root_path), step
        files.close()


def test_a_restore_survives_a_crash_at_any_step(memory: Path) -> None:
    def push_twice(root_path: Path) -> None:
        push_first(root_path)
        files = reopen(root_path)
        push(files, SECOND, FIRST, 1)
        files.close()

    def operation(root_path: Path) -> None:
        restore.restore(reopen(root_path), 1, [], Author("me", 3.0))

    for step, root_path in crash_at_every_step(memory, push_twice, operation):
        files = reopen(root_path)
        newest = files.index.newest_revision().number
        assert read_disk(root_path) == (FIRST if newest == 3 else SECOND), step
        assert read_revision(files, 1) == FIRST, step
        assert read_revision(files, 2) == SECOND, step
        assert restore.restore(files, 1, [], Author("me", 3.0)).number == 3
        assert read_disk(root_path) == FIRST
        files.close()


@pytest.mark.usefixtures("threads")
def test_a_task_directory_is_complete_or_missing(memory: Path) -> None:
    def operation(root_path: Path) -> None:
        files = reopen(root_path)
        checkouts.create(files, 7, 1, 0)
        checkouts.remove_unchanged(files, 7)

    for _, root_path in crash_at_every_step(memory, push_first, operation):
        files = reopen(root_path)
        checkouts.remove_unchanged(files, 7)
        checkouts.create(files, 7, 1, 0)
        tree = root_path / "tasks/7"
        assert {
            str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()
        } == FIRST
        files.close()


def test_a_garbage_collection_survives_a_crash_at_any_step(memory: Path) -> None:
    def push_three_times(root_path: Path) -> None:
        push_first(root_path)
        files = reopen(root_path)
        push(files, SECOND, FIRST, 1)
        push(files, {**SECOND, "more": b"y"}, SECOND, 2)
        files.close()

    def collect(files: WorkspaceFiles) -> None:
        garbage.collect(files, pinned=(), running=(), before=2.5)

    for _, root_path in crash_at_every_step(
        memory, push_three_times, lambda root_path: collect(reopen(root_path))
    ):
        files = reopen(root_path)
        collect(files)
        assert read_revision(files, 2) == SECOND
        assert [r.number for r in files.index.list_revisions(limit=9)] == [3, 2]
        assert {n for n in files.objects.list_names()} <= {
            row[0].hex() for row in files.index.fetch_rows("SELECT digest FROM objects")
        }
        files.close()


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_half_written_contents_are_not_used(tmp_path: Path, cut: int) -> None:
    """A content whose write was interrupted already has its final name."""
    root_path = tmp_path / "u" / "w"
    make_directories(root_path, 0)
    files = reopen(root_path)
    digest = blake3(b"one").digest()
    (root_path / "incoming" / digest.hex()).write_bytes(b"one"[:cut])
    (root_path / "incoming" / f"{digest.hex()}.2").write_bytes(b"o")
    files.close()
    files = reopen(root_path)
    push(files, {"f": b"one", "g": b"one"}, {}, 0)
    assert read_disk(root_path) == {"f": b"one", "g": b"one"}
    files.close()
