"""A large file becomes complete despite concurrent pushes, truncation and garbage collection."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from blake3 import blake3

from hai_backend.domain.errors import Conflict, Invalid
from hai_backend.domain.workspace import Chunk, Entry, EntryKind
from hai_backend.workspaces import garbage_collection as garbage
from hai_backend.workspaces.chunks import assembly, chunks
from hai_backend.workspaces.files import WorkspaceFiles, make_directories, now_ns
from hai_backend.workspaces.push import apply
from hai_backend.workspaces.push.push import Push
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import direct_io

PIECES = [blake3(bytes([number])).digest(600_000 + number) for number in range(6)]
FILE_CONTENT = b"".join(PIECES)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkspaceFiles]:
    for module in (direct_io, assembly):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 20)
    make_directories(tmp_path / "u" / "w", 0)
    made = WorkspaceFiles(tmp_path / "u" / "w", 0)
    apply.recover(made)
    yield made
    made.close()


def digest(content: bytes) -> bytes:
    return blake3(content).digest()


def announce_file(
    files: WorkspaceFiles, number: int, pieces: Sequence[bytes], path: str = "big"
) -> Push:
    """Start a push, and announce one file with its recipe."""
    file_content, push = b"".join(pieces), Push(files, number)
    push.add_changes(
        [Entry(path, EntryKind.FILE, False, len(file_content), 1, digest(file_content))]
    )
    push.add_recipe(digest(file_content), [Chunk(digest(p), len(p)) for p in pieces], last=True)
    return push


def send(push: Push, content: bytes, name: bytes = b"") -> None:
    push.receive([ContentsMessage([name or digest(content)], [len(content)], content, False)])


def commit(push: Push, base: int = 0) -> None:
    push.commit(base, Author("me", 1.0), allow_many_removals=True)
    push.close()


def push_completely(files: WorkspaceFiles, pieces: Sequence[bytes] = PIECES, base: int = 0) -> None:
    push = announce_file(files, 90, pieces)
    for piece in pieces:
        send(push, piece)
    commit(push, base)


def interrupt_push(files: WorkspaceFiles, pieces: Sequence[bytes], sent: Sequence[int]) -> Path:
    """Start a push that ends before its commit. Return the path of its incomplete file."""
    push = announce_file(files, 80, pieces)
    for number in sent:
        send(push, pieces[number])
    push.close()
    return files.path / "incoming" / f"{digest(b''.join(pieces)).hex()}.part"


def count_pushes(files: WorkspaceFiles, pieces: Sequence[bytes] = PIECES) -> int:
    """Push until a commit succeeds. Return the number of pushes."""
    for times in range(1, 5):
        try:
            push_completely(files, pieces)
        except Conflict:
            continue
        assert (files.tree / "big").read_bytes() == b"".join(pieces)
        return times
    raise AssertionError("no push succeeds")


@pytest.mark.parametrize("existing", [PIECES[0], PIECES[0][::-1]], ids=["right", "wrong"])
def test_a_push_that_another_one_replaced_writes_nothing(
    files: WorkspaceFiles, existing: bytes
) -> None:
    """The stream of a push hangs, the client pushes again, and a program changes the file."""
    old = announce_file(files, 1, PIECES)
    send(old, existing, digest(PIECES[0]))
    push_completely(files)
    with (files.tree / "big").open("r+b") as file:
        file.write(b"a result")
    old.close()
    assert (files.tree / "big").read_bytes() == b"a result" + FILE_CONTENT[8:]


def test_bytes_that_are_hashed_are_never_written_again(files: WorkspaceFiles) -> None:
    """One recipe has a wrong digest of a chunk, and another push brings the right chunk."""
    lie = PIECES[0][::-1]
    liar = Push(files, 1)
    liar.add_changes([Entry("big", EntryKind.FILE, False, 1_200_001, 1, digest(lie + PIECES[1]))])
    recipe = [Chunk(digest(PIECES[0]), len(lie)), Chunk(digest(PIECES[1]), len(PIECES[1]))]
    liar.add_recipe(digest(lie + PIECES[1]), recipe, last=True)
    send(liar, lie, digest(PIECES[0]))
    send(liar, PIECES[1])
    other = announce_file(files, 2, [PIECES[0], PIECES[2]], "other")
    send(other, PIECES[0])
    other.close()
    commit(liar)
    assert (files.tree / "big").read_bytes() == lie + PIECES[1]


def test_a_file_that_is_being_assembled_is_not_deleted(
    files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "_BUFFER_BYTES", 1_000_000)
    part = interrupt_push(files, PIECES, [0, 1, 2])
    os.utime(part, ns=(0, 0))
    push = announce_file(files, 2, PIECES)
    os.utime(part, ns=(0, 0))
    garbage.collect(files, pinned=[], running=[], before=now_ns() / 1e9)
    for piece in PIECES[3:]:
        send(push, piece)
    commit(push)
    assert (files.tree / "big").read_bytes() == FILE_CONTENT


@pytest.mark.parametrize("sent", [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [5, 4, 3]])
@pytest.mark.parametrize("left", [0, 1_000_000, 3_000_000])
def test_chunks_of_a_truncated_file_are_sent_again(
    files: WorkspaceFiles, sent: list[int], left: int
) -> None:
    """After a power loss, a file may be shorter than the index says."""
    part = interrupt_push(files, PIECES, sent)
    if part.stat().st_size > left:
        os.truncate(part, left)
    assert count_pushes(files) <= 3


def test_a_truncated_source_is_not_used(files: WorkspaceFiles) -> None:
    part = interrupt_push(files, PIECES, [0, 1, 2, 3])
    os.truncate(part, 1_000_000)
    assert count_pushes(files, [PIECES[5], *PIECES[:4]]) <= 3


@pytest.mark.parametrize("cut", [100_000, 250_000, 400_000])
def test_chunks_of_an_older_recipe_do_no_harm(files: WorkspaceFiles, cut: int) -> None:
    """Another version of the client cuts files at other offsets."""
    older = [
        FILE_CONTENT[:cut],
        FILE_CONTENT[cut : cut + 900_000],
        *_pieces_of(FILE_CONTENT[cut + 900_000 :]),
    ]
    interrupt_push(files, older, [0, 1])
    interrupt_push(files, PIECES, range(6))
    assert count_pushes(files) == 1


def _pieces_of(content: bytes) -> list[bytes]:
    return [content[at : at + 1_000_000] for at in range(0, len(content), 1_000_000)]


def test_a_file_of_many_equal_chunks_costs_no_more_than_others(files: WorkspaceFiles) -> None:
    """However many positions have a chunk, only a few are read."""
    zeros = bytes(4096)
    row = (digest(zeros), b"q" * 32)
    with files.index.transaction() as db:
        rows = ((*row, at * 4096, 4096, 1) for at in range(5_000))
        db.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", rows)
    row_counts: list[int] = []
    rows_of = files.index.fetch_rows
    files.index.fetch_rows = lambda *arguments: (
        row_counts.append(len(found := rows_of(*arguments))) or found
    )  # type: ignore[method-assign]
    push = announce_file(files, 1, [zeros] * 300)
    push.close()
    assert sum(row_counts) < 300 * 10


@pytest.mark.parametrize("sizes", [[1, 4096], [100, 100], [4095, 10_000]])
def test_only_the_last_chunk_may_be_small(files: WorkspaceFiles, sizes: list[int]) -> None:
    content = bytes(sum(sizes))
    push = Push(files, 1)
    push.add_changes([Entry("big", EntryKind.FILE, False, len(content), 1, digest(content))])
    with pytest.raises(Invalid, match="4096"):
        push.add_recipe(digest(content), [Chunk(digest(bytes(s)), s) for s in sizes], last=True)
    push.close()


def test_a_full_disk_at_the_end_of_a_push_leaves_no_file_open(
    files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    before = len(os.listdir("/proc/self/fd"))
    push = announce_file(files, 1, PIECES)
    send(push, PIECES[0])
    monkeypatch.setattr(chunks, "_mark_present", fail)
    push.close()
    assert len(os.listdir("/proc/self/fd")) <= before
    monkeypatch.undo()
    assert count_pushes(files) == 1
