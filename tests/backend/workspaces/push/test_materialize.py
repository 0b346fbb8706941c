"""New directories are built outside the tree and published by one rename, whatever is in the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from hai_backend.domain.errors import Conflict
from hai_backend.domain.workspace import Entry, EntryKind
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.index import Index
from hai_backend.workspaces.push import apply, staging
from hai_backend.workspaces.push import push as pushing
from hai_backend.workspaces.push.push import Push
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import directory_scan, tree_scan

ME = Author("me", 1.0)
MTIME = 1_600_000_000_000_000_000


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkspaceFiles]:
    monkeypatch.setattr(pushing, "FEW_CONTENTS", 0)
    made = tmp_path / "u" / "w"
    make_directories(made, 0)
    files = WorkspaceFiles(made, 0)
    apply.recover(files)
    yield files
    files.close()


def entry(path: str, data: bytes, *, executable: bool = False) -> Entry:
    return Entry(path, EntryKind.FILE, executable, len(data), MTIME, blake3(data).digest())


def send(push: Push, *contents: bytes) -> None:
    digests = [blake3(data).digest() for data in contents]
    push.receive([ContentsMessage(digests, list(map(len, contents)), b"".join(contents), False)])


def pushed(files: WorkspaceFiles, tree: dict[str, bytes], base: int = 0) -> int:
    push = Push(files, base + 1)
    missing = push.add_changes([entry(path, data) for path, data in tree.items()])
    send(push, *(data for data in set(tree.values()) if blake3(data).digest() in missing))
    try:
        return push.commit(base, ME, allow_many_removals=True).number
    finally:
        push.close()


def on_disk(files: WorkspaceFiles) -> dict[str, bytes]:
    found = files.tree.rglob("*")
    return {str(p.relative_to(files.tree)): p.read_bytes() for p in found if p.is_file()}


def left(files: WorkspaceFiles) -> list[str]:
    return [*os.listdir(files.laid), *files.incoming.list_names()]


def test_a_new_directory_has_times_and_modes_and_is_not_read_again(
    files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = Push(files, 1)
    push.add_changes([entry("new/run", b"#!", executable=True), entry("new/deep/f", b"f")])
    send(push, b"#!", b"f")
    assert not list(files.tree.iterdir())
    assert push.commit(0, ME, allow_many_removals=True).files == 2
    push.close()
    assert on_disk(files) == {"new/run": b"#!", "new/deep/f": b"f"}
    assert (files.tree / "new/run").stat().st_mode & 0o777 == 0o755
    assert (files.tree / "new/deep/f").stat().st_mtime_ns == MTIME
    assert left(files) == []
    monkeypatch.setattr(directory_scan, "hash_file", lambda file: pytest.fail("it was read again"))
    assert tree_scan.scan_tree(files, ME).number == 1


def test_only_new_directories_are_built_outside_the_tree(files: WorkspaceFiles) -> None:
    pushed(files, {"old/f": b"1", "top": b"t"})
    assert pushed(files, {"old/g": b"2", "old/new/f": b"3", "old/new/in/g": b"4"}, 1) == 2
    assert on_disk(files) == {
        "old/f": b"1",
        "old/g": b"2",
        "old/new/f": b"3",
        "old/new/in/g": b"4",
        "top": b"t",
    }
    assert left(files) == []


def test_one_content_may_belong_to_many_new_and_existing_paths(files: WorkspaceFiles) -> None:
    tree = {"a/f": b"same", "a/b/g": b"same", "h": b"same", "c/f": b"other"}
    pushed(files, tree)
    assert on_disk(files) == tree
    assert left(files) == []


@pytest.mark.parametrize("answer", ["another file", "nothing", "another mode"])
def test_the_last_entry_for_a_path_counts(files: WorkspaceFiles, answer: str) -> None:
    push = Push(files, 1)
    push.add_changes([entry("d/f", b"first"), entry("d/g", b"g"), entry("e/in/f", b"first")])
    send(push, b"first", b"g")
    if answer == "another file":
        push.add_changes([entry("d/f", b"second"), entry("e/in/f", b"g")])
        send(push, b"second", b"g")
        expected = {"d/f": b"second", "d/g": b"g", "e/in/f": b"g"}
    elif answer == "nothing":
        push.add_changes([Entry("d/f", EntryKind.NONE), Entry("e/in/f", EntryKind.NONE)])
        expected = {"d/g": b"g"}
    else:
        push.add_changes([entry("d/f", b"first", executable=True), Entry("e/in/f", EntryKind.NONE)])
        expected = {"d/f": b"first", "d/g": b"g"}
        send(push, b"first")
    push.commit(0, ME, allow_many_removals=True)
    push.close()
    assert on_disk(files) == expected
    assert left(files) == []
    assert tree_scan.scan_tree(files, ME).number == 1


def test_files_of_an_interrupted_push_are_not_requested_again(files: WorkspaceFiles) -> None:
    tree = {"d/f": b"one", "d/g": b"two", "e": b"three"}
    broken = Push(files, 1)
    broken.add_changes([entry(path, data) for path, data in tree.items()])
    send(broken, b"one", b"three")
    broken.close()
    again = Push(files, 2)
    missing = again.add_changes([entry(path, data) for path, data in tree.items()])
    assert missing == [blake3(b"two").digest()]
    send(again, b"two")
    again.commit(0, ME, allow_many_removals=True)
    again.close()
    assert on_disk(files) == tree
    assert left(files) == []


def test_a_file_in_the_way_of_a_new_directory_is_scanned_first(
    files: WorkspaceFiles,
) -> None:
    push = Push(files, 1)
    push.add_changes([entry("d/f", b"mine"), entry("e/f", b"mine, too")])
    send(push, b"mine", b"mine, too")
    (files.tree / "d").mkdir()
    (files.tree / "d/f").write_bytes(b"a program's")
    with pytest.raises(Conflict, match="d/f"):
        push.commit(0, ME, allow_many_removals=True)
    push.close()
    assert on_disk(files) == {"d/f": b"a program's"}
    assert pushed(files, {"e/f": b"mine, too"}) == 1


@pytest.mark.parametrize("changed_path", ["d", "d/in", "d/in/f"])
def test_a_file_written_just_before_the_rename_is_not_lost(
    files: WorkspaceFiles, changed_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program writes between the last check and the rename."""
    commit = staging.commit

    def interfere(index: Index, author: Author) -> object:
        made = commit(index, author)
        (files.tree / changed_path).parent.mkdir(parents=True, exist_ok=True)
        (files.tree / changed_path).write_bytes(b"a program's")
        return made

    monkeypatch.setattr(staging, "commit", interfere)
    pushed(files, {"d/in/f": b"mine", "d/g": b"mine, too"})
    assert on_disk(files) == {
        "d/in/f": b"mine",
        "d/g": b"mine, too",
        f"{changed_path}.conflict-1": b"a program's",
    }
    assert left(files) == []


def test_a_version_is_found_while_its_directory_is_being_published(
    files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If storage fails at that time, the next process that opens the workspace continues."""
    contents_read = []

    def fail(files: WorkspaceFiles) -> None:
        if files.index.newest_revision().number:
            file = files.find_content(blake3(b"mine").digest())
            contents_read.append(os.pread(file, 9, 0) if file is not None else None)
            raise OSError("the storage goes away")

    with monkeypatch.context() as patch:
        patch.setattr(apply, "apply_pending", fail)
        with pytest.raises(OSError, match="goes away"):
            pushed(files, {"d/f": b"mine"})
    assert contents_read == [b"mine"]
    apply.recover(files)
    assert on_disk(files) == {"d/f": b"mine"}
    assert left(files) == []
