"""The server dies at every step that it takes on storage, in the middle of a push, a look, a restore and a tidying.

Each story is told in a process of its own, which ends without a word (as by SIGKILL) at its n-th step; then another
one opens the workspace, looks at it, and tells the rest. What was acknowledged is there, what was not is there whole
or not at all, and every version that ever was is in the tree or can be restored.
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
from hai_backend.workspaces import checkouts, garbage, read, restore
from hai_backend.workspaces.contents import opened
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
    made = [
        Entry(
            path, EntryKind.FILE, False, len(data), 1_600_000_000_000_000_000, blake3(data).digest()
        )
        for path, data in now.items()
        if data is not None
    ]
    old = {*before, *(f for path in before for f in folders(path))}
    new = {*now, *(f for path in now for f in folders(path))}
    made += [Entry(path, EntryKind.DIRECTORY) for path in new - {*now}]
    return made + [Entry(path, EntryKind.NONE) for path in sorted(old - new)]


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


def opened_again(root: Path) -> WorkspaceFiles:
    files = WorkspaceFiles(root, 0)
    apply.recover(files)
    return files


def on_disk(root: Path) -> dict[str, bytes]:
    tree = root / "files"
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


def of_revision(files: WorkspaceFiles, number: int) -> dict[str, bytes]:
    found = {}
    for page in files.index.tree(number):
        for entry in page:
            if entry.kind is EntryKind.FILE:
                source = read.RevisionFiles(files, number)
                with source.folders() as tree, opened(source.open(tree, entry.path)) as file:
                    found[entry.path] = os.pread(file, entry.size + 1, 0)
    return found


def told_until(step: int, story: Callable[[], Any], below: Path) -> int:
    """Tell it in a child that ends at this step; answers how it ended."""
    child = os.fork()
    if child == 0:
        left = step

        def one() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(KILLED)

        def count(event: str, args: tuple[Any, ...]) -> None:
            if event in STEPS and not (event == "open" and not _writes(args)):
                one()

        def connect(*args: Any, **more: Any) -> sqlite3.Connection:
            index = sqlite3.Connection(*args, **more)
            index.set_trace_callback(lambda statement: one() if statement == "COMMIT" else None)
            return index

        try:
            sys.addaudithook(count)
            sqlite3.connect = connect  # type: ignore[assignment]
            story()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(CHANGES)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _writes(args: tuple[Any, ...]) -> bool:
    return isinstance(args[2], int) and bool(args[2] & os.O_CREAT)


def at_every_step(root: Path, prepare: Callable[[Path], None], story: Callable[[Path], Any]) -> Any:
    """Each of the steps of a story, with the workspace as it is after a crash there."""
    step = 0
    while True:
        step += 1
        root_path = root / str(step) / "u" / "w"
        make_directories(root_path, 0)
        prepare(root_path)
        code = told_until(step, lambda: story(root_path), root_path)  # noqa: B023 - told before the next
        assert code in (KILLED, CHANGES), f"step {step} failed"
        yield step, root_path
        if code == CHANGES:
            return


@pytest.fixture
def memory() -> Iterator[Path]:
    """Where nobody waits for a disk, if there is such a place."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture(params=["new directories are laid out", "all is incoming", "by many threads"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which a small file gets to its place; with few files there is one of them."""
    monkeypatch.setattr(pushing, "FEW_CONTENTS", 16 if request.param == "all is incoming" else 0)
    if request.param == "by many threads":
        request.getfixturevalue("slow_storage")


@pytest.fixture(params=["one thread", "many threads"])
def threads(request: pytest.FixtureRequest) -> None:
    """Quick storage and slow storage."""
    if request.param == "many threads":
        request.getfixturevalue("slow_storage")


def begin(root_path: Path) -> None:
    files = opened_again(root_path)
    push(files, FIRST, {}, 0)
    files.close()


@pytest.mark.usefixtures("few")
def test_the_first_push_may_be_cut_anywhere(memory: Path) -> None:
    def story(root_path: Path) -> None:
        push(opened_again(root_path), FIRST, {}, 0)

    steps = 0
    for _, root_path in at_every_step(memory, lambda root_path: None, story):
        steps += 1
        files = opened_again(root_path)
        newest = files.index.newest().number
        assert on_disk(root_path) == (FIRST if newest else {})
        assert push(files, FIRST, {} if newest == 0 else FIRST, newest) == 1
        assert on_disk(root_path) == FIRST
        assert tree_scan.scan(files, Author("tasks", 9.0)).number == 1
        files.close()
    assert steps > 25


@pytest.mark.usefixtures("few")
def test_a_push_that_replaces_removes_and_moves_may_be_cut_anywhere(memory: Path) -> None:
    def story(root_path: Path) -> None:
        push(opened_again(root_path), SECOND, FIRST, 1)

    steps = 0
    for step, root_path in at_every_step(memory, begin, story):
        steps += 1
        files = opened_again(root_path)
        newest = files.index.newest().number
        assert on_disk(root_path) == (SECOND if newest == 2 else FIRST), step
        assert of_revision(files, 1) == FIRST, step
        assert push(files, SECOND, FIRST if newest == 1 else SECOND, newest) == 2
        assert on_disk(root_path) == SECOND
        assert of_revision(files, 1) == FIRST
        assert tree_scan.scan(files, Author("tasks", 9.0)).number == 2
        files.close()
    assert steps > 30


def test_what_a_program_removes_before_the_server_is_back_can_be_pushed_again(memory: Path) -> None:
    """The index may believe to have a content that went before it could be kept."""

    def story(root_path: Path) -> None:
        push(opened_again(root_path), SECOND, FIRST, 1)

    for step, root_path in at_every_step(memory, begin, story):
        shutil.rmtree(root_path / "files")
        (root_path / "files").mkdir()
        files = opened_again(root_path)
        now = tree_scan.scan(files, Author("tasks", 9.0)).number
        there = {entry.path: None for page in files.index.tree(now) for entry in page}
        push(files, FIRST, there, now)
        assert on_disk(root_path) == FIRST, step
        files.close()


@pytest.mark.usefixtures("threads")
def test_a_look_at_what_programs_wrote_may_be_cut_anywhere(memory: Path) -> None:
    """What was hashed is not believed before the revision that has it is there."""

    def written(root_path: Path) -> None:
        begin(root_path)
        tree = root_path / "files"
        (tree / "a/f").write_bytes(b"by a program")
        (tree / "gone").unlink()
        (tree / "b/c/d").unlink()
        (tree / "b/c").rmdir()
        (tree / "b/c").write_bytes(b"a file now")
        (tree / "made").mkdir()
        (tree / "made/it").write_bytes(b"new")
        for path in tree.rglob("*"):
            os.utime(path, (1e9, 1e9))  # so that a stat will do

    def scan_tree(root_path: Path) -> int:
        return tree_scan.scan(opened_again(root_path), Author("tasks", 2.0)).number

    for step, root_path in at_every_step(memory, written, scan_tree):
        files = opened_again(root_path)
        assert tree_scan.scan(files, Author("tasks", 3.0)).number == 2
        assert of_revision(files, 2) == on_disk(root_path), step
        files.close()


def test_restoring_may_be_cut_anywhere(memory: Path) -> None:
    def twice(root_path: Path) -> None:
        begin(root_path)
        files = opened_again(root_path)
        push(files, SECOND, FIRST, 1)
        files.close()

    def story(root_path: Path) -> None:
        restore.restore(opened_again(root_path), 1, [], Author("me", 3.0))

    for step, root_path in at_every_step(memory, twice, story):
        files = opened_again(root_path)
        newest = files.index.newest().number
        assert on_disk(root_path) == (FIRST if newest == 3 else SECOND), step
        assert of_revision(files, 1) == FIRST, step
        assert of_revision(files, 2) == SECOND, step
        assert restore.restore(files, 1, [], Author("me", 3.0)).number == 3
        assert on_disk(root_path) == FIRST
        files.close()


@pytest.mark.usefixtures("threads")
def test_a_directory_of_a_task_is_whole_or_not_there(memory: Path) -> None:
    def story(root_path: Path) -> None:
        files = opened_again(root_path)
        checkouts.create(files, 7, 1, 0)
        checkouts.remove_unchanged(files, 7)

    for _, root_path in at_every_step(memory, begin, story):
        files = opened_again(root_path)
        checkouts.remove_unchanged(files, 7)
        checkouts.create(files, 7, 1, 0)
        tree = root_path / "tasks/7"
        assert {
            str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()
        } == FIRST
        files.close()


def test_collecting_may_be_cut_anywhere_and_loses_nothing_that_is_kept(memory: Path) -> None:
    def thrice(root_path: Path) -> None:
        begin(root_path)
        files = opened_again(root_path)
        push(files, SECOND, FIRST, 1)
        push(files, {**SECOND, "more": b"y"}, SECOND, 2)
        files.close()

    def collect(files: WorkspaceFiles) -> None:
        garbage.collect(files, pinned=(), running=(), before=2.5)

    for _, root_path in at_every_step(
        memory, thrice, lambda root_path: collect(opened_again(root_path))
    ):
        files = opened_again(root_path)
        collect(files)
        assert of_revision(files, 2) == SECOND
        assert [r.number for r in files.index.revisions(limit=9)] == [3, 2]
        assert {n for n in files.objects.names()} <= {
            row[0].hex() for row in files.index.rows("SELECT digest FROM objects")
        }
        files.close()


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_what_was_half_written_is_not_believed(tmp_path: Path, cut: int) -> None:
    """A content that stopped in the middle of a write has the name of the whole."""
    root_path = tmp_path / "u" / "w"
    make_directories(root_path, 0)
    files = opened_again(root_path)
    digest = blake3(b"one").digest()
    (root_path / "incoming" / digest.hex()).write_bytes(b"one"[:cut])
    (root_path / "incoming" / f"{digest.hex()}.2").write_bytes(b"o")
    files.close()
    files = opened_again(root_path)
    push(files, {"f": b"one", "g": b"one"}, {}, 0)
    assert on_disk(root_path) == {"f": b"one", "g": b"one"}
    files.close()
