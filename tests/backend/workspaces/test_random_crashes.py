"""A server pushes, restores, checks out and collects random trees, and crashes at a random step, many times.

Files with modes, links, empty directories, and large files that share chunks replace one another. After each crash the
newest revision is completely on the disk, and all revisions can be read.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from blake3 import blake3

from hai_backend.domain.workspace import Chunk, Entry, EntryKind
from hai_backend.workspaces import checkouts, read
from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces import restore as restoring
from hai_backend.workspaces.contents import closing_descriptor
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push import push as pushing
from hai_backend.workspaces.push.push import Push
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import tree_scan
from tests.backend.workspaces.test_crashes import (
    BIG,
    CHANGES,
    KILLED,
    folders,
    memory,  # noqa: F401 - a fixture
    reopen,
    run_until_step,
)

SEEDS, ROUNDS, STEPS = range(12), 8, (0, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 50)
NAMES = ("a", "A", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "x", "x/y/z")
PIECE = 700_000
Leaf = tuple[str, bytes]  # f, x: a file, executable or not; l: a link
Tree = Mapping[str, Leaf | None]  # None: a directory


def random_tree(choose: random.Random) -> Tree:
    found: dict[str, Leaf | None] = {}
    for name in choose.sample(NAMES, choose.randrange(1, len(NAMES))):
        if all(found.get(above) is None for above in folders(name)) and name not in found:
            found |= dict.fromkeys(folders(name))
            found[name] = random_leaf(choose)
    return found


def random_leaf(choose: random.Random) -> Leaf | None:
    large = BIG[: choose.choice([0, 7])] + bytes(choose.choice([0, 50_000])) + BIG
    small = choose.choice([b"", b"1", b"2"])
    return choose.choice(
        [None, ("l", b"a"), ("f", small), ("f", small), ("x", small), ("f", large)]
    )


def entries(now: Tree, before: Tree) -> list[Entry]:
    removals = [Entry(path, EntryKind.NONE) for path in sorted(before.keys() - now.keys())]
    return [entry(path, leaf) for path, leaf in now.items()] + removals


def entry(path: str, leaf: Leaf | None) -> Entry:
    if leaf is None:
        return Entry(path, EntryKind.DIRECTORY)
    kind, data = leaf
    if kind == "l":
        return Entry(path, EntryKind.SYMLINK, target=data.decode())
    return Entry(path, EntryKind.FILE, kind == "x", len(data), 10**18, blake3(data).digest())


def push(files: WorkspaceFiles, now: Tree, before: Tree, base: int) -> None:
    contents_by_digest = {blake3(leaf[1]).digest(): leaf[1] for leaf in now.values() if leaf}
    push = Push(files, 1)
    for missing in push.add_changes(entries(now, before)):
        data = contents_by_digest[missing]
        pieces = [data[i : i + PIECE] for i in range(0, len(data), PIECE)] or [b""]
        cut = {blake3(piece).digest(): piece for piece in pieces}
        missing_chunks = [missing]
        if len(data) > pushing.MAX_UNCHUNKED_BYTES:
            recipe = [Chunk(blake3(piece).digest(), len(piece)) for piece in pieces]
            missing_chunks = push.add_recipe(missing, recipe, last=True)
        for digest in missing_chunks:
            push.receive([ContentsMessage([digest], [len(cut[digest])], cut[digest], False)])
    push.commit(base, Author("me", float(base + 1)), allow_many_removals=True)
    push.close()


def read_disk(root: Path) -> Tree:
    return {str(path.relative_to(root)): leaf_of(path) for path in root.rglob("*")}


def leaf_of(path: Path) -> Leaf | None:
    if path.is_symlink():
        return "l", os.fsencode(path.readlink())
    if path.is_dir():
        return None
    return "x" if path.stat().st_mode & 0o100 else "f", path.read_bytes()


def read_revision(files: WorkspaceFiles, number: int) -> Tree:
    found: dict[str, Leaf | None] = {}
    for each in (entry for page in files.index.iterate_tree(number) for entry in page):
        found[each.path] = None
        if each.kind is EntryKind.SYMLINK:
            found[each.path] = "l", each.target.encode()
        if each.kind is EntryKind.FILE:
            source = read.RevisionFiles(files, number)
            with (
                source.open_tree() as tree,
                closing_descriptor(source.open(tree, each.path)) as file,
            ):
                data = os.pread(file, each.size + 1, 0)
            found[each.path] = "x" if each.executable else "f", data
    return found


class RandomHistory:
    """The history of one workspace. `trees` are the acknowledged trees by revision."""

    def __init__(self, choose: random.Random, directory: Path) -> None:
        self.choose, self.directory = choose, directory
        self.trees: dict[int, Tree] = {0: {}}
        make_directories(directory, 0)

    @property
    def newest(self) -> int:
        return max(self.trees)

    def choose_operation(self) -> tuple[Tree, Callable[[WorkspaceFiles], None]]:
        """Return the next tree, and the operation that leads to it."""
        newest, now = self.newest, self.trees[self.newest]
        number, tree = self.choose.randint(1, max(newest, 1)), random_tree(self.choose)
        action = self.choose.choice(["push", "push", "push", "restore", "collect", "check out"])
        if action == "push" or not newest:
            return tree, lambda files: push(files, tree, now, newest)
        if action == "restore":
            author = Author("me", newest + 1.0)
            return self.trees[number], lambda files: restore(files, number, author)
        return now, collect_garbage if action == "collect" else lambda files: check_out(
            files, number
        )

    def crash_once(self) -> None:
        """Run an operation that crashes at a random step, and check the workspace afterwards."""
        tree, operation = self.choose_operation()
        code = run_until_step(
            self.choose.choice(STEPS), lambda: operation(reopen(self.directory)), self.directory
        )
        assert code in (KILLED, CHANGES)
        files = reopen(self.directory)
        now = files.index.newest_revision().number
        assert now in (self.newest, self.newest + 1)
        self.trees.setdefault(now, tree)
        assert read_disk(self.directory / "files") == self.trees[now]
        for number in self.trees.keys() - {0}:
            assert read_revision(files, number) == self.trees[number]
        assert tree_scan.scan_tree(files, Author("tasks", 99.0)).number == now
        files.close()


def restore(files: WorkspaceFiles, number: int, author: Author) -> None:
    restoring.restore(files, number, [], author)


def collect_garbage(files: WorkspaceFiles) -> None:
    garbage.collect(files, pinned=(), running=(), before=0.5)


def check_out(files: WorkspaceFiles, number: int) -> None:
    checkouts.create(files, number, number, 0)
    checkouts.remove_unchanged(files, number)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_revision_is_lost_after_random_crashes(
    seed: int,
    memory: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pushing, "FEW_CONTENTS", 16 * (seed % 2))
    history = RandomHistory(random.Random(seed), memory / "u" / "w")
    for _ in range(ROUNDS):
        history.crash_once()
