"""Large files are assembled from received and stored chunks in one pass that also hashes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from blake3 import blake3

from hai_backend.domain.errors import Conflict, Invalid
from hai_backend.domain.workspace import Chunk, Entry, EntryKind
from hai_backend.workspaces.chunks import assembly
from hai_backend.workspaces.chunks.sources import MAX_OPEN
from hai_backend.workspaces.chunks.streamed_file import StreamedFile
from hai_backend.workspaces.files import WorkspaceFiles, make_directories
from hai_backend.workspaces.push import apply
from hai_backend.workspaces.push.push import MAX_ACTIVE_ASSEMBLIES, Push
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.storage import direct_io

PIECES = [blake3(bytes([number])).digest(600_000 + number) for number in range(4)]
FILE_CONTENT = b"".join(PIECES)


@pytest.mark.parametrize(
    ("order", "read"),
    [
        pytest.param([0, 1, 2, 3], [], id="in order"),
        pytest.param([0, 2, 1, 3], [2, 3], id="in another order"),
        pytest.param([1, 2, 3, 0], [1, 2, 3], id="the first one last"),
        pytest.param([0, 0, 1, 2, 3], [], id="one twice"),
    ],
)
def test_only_chunks_that_arrived_out_of_order_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: list[int], read: list[int]
) -> None:
    skipped: list[int] = []
    skip = StreamedFile.skip

    def noting(running: StreamedFile, content: memoryview) -> None:
        skipped.append(len(content))
        skip(running, content)

    monkeypatch.setattr(StreamedFile, "skip", noting)
    files = _find_open(tmp_path)
    _push(files, FILE_CONTENT, order)
    assert (files.tree / "big").read_bytes() == FILE_CONTENT
    assert sum(skipped) == sum(len(PIECES[number]) for number in read)
    files.close()


def test_each_part_of_a_recipe_is_answered_and_older_versions_are_used(tmp_path: Path) -> None:
    files = _find_open(tmp_path)
    _push(files, FILE_CONTENT, [0, 1, 2, 3])
    new = blake3(b"new").digest(700_000)
    pieces = [PIECES[0], new, *PIECES[1:]]
    push, digest = _wanting(files, b"".join(pieces))
    parts = [pieces[:2], pieces[2:4], pieces[4:]]
    answers = [push.add_recipe(digest, _chunks(part), last=part is parts[-1]) for part in parts]
    assert answers == [[blake3(new).digest()], [], []]
    assert push.reused_chunks == 4
    push.receive([ContentsMessage([blake3(new).digest()], [len(new)], new, False)])
    push.commit(1, Author("me", 2.0), allow_many_removals=True)
    push.close()
    assert (files.tree / "big").read_bytes() == b"".join(pieces)
    files.close()


def test_a_chunk_that_occurs_many_times_is_sent_once(tmp_path: Path) -> None:
    files = _find_open(tmp_path)
    piece = bytes(500_000)
    push, digest = _wanting(files, piece * 6)
    first = push.add_recipe(digest, _chunks([piece] * 3), last=False)
    assert first == [blake3(piece).digest()]
    assert push.add_recipe(digest, _chunks([piece] * 3), last=True) == []
    push.receive([ContentsMessage(first, [len(piece)], piece, False)])
    push.commit(0, Author("me", 1.0), allow_many_removals=True)
    push.close()
    assert (files.tree / "big").read_bytes() == piece * 6
    files.close()


@pytest.mark.parametrize("arrived", [[0, 1], [1, 3], [3]])
def test_chunks_of_an_interrupted_push_are_not_requested_again(
    tmp_path: Path, arrived: list[int]
) -> None:
    files = _find_open(tmp_path)
    digests = [blake3(piece).digest() for piece in PIECES]
    for numbers, broken in ((arrived, True), ([n for n in range(4) if n not in arrived], False)):
        push, digest = _wanting(files, FILE_CONTENT)
        missing = push.add_recipe(digest, _chunks(PIECES), last=True)
        assert set(missing) == set(digests if broken else [digests[n] for n in numbers])
        for n in numbers:
            push.receive([ContentsMessage([digests[n]], [len(PIECES[n])], PIECES[n], False)])
        if not broken:
            push.commit(0, Author("me", 1.0), allow_many_removals=True)
        push.close()
    assert (files.tree / "big").read_bytes() == FILE_CONTENT
    files.close()


def test_chunks_that_were_not_requested_replace_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that continue a file are not verified separately, so they must not overwrite hashed bytes."""
    for module in (direct_io, assembly):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1 << 20)
    files = _find_open(tmp_path)
    _push(files, FILE_CONTENT, [0, 1, 2, 3])
    extra = blake3(b"extra").digest(600_000)
    file_contents = [FILE_CONTENT + extra, FILE_CONTENT[: -len(PIECES[3])] + extra]
    push, bad = Push(files, 1), PIECES[0][::-1]
    push.add_changes(_entries(file_contents))
    for file_content, recipe in zip(
        file_contents, ([*PIECES, extra], [*PIECES[:3], extra]), strict=True
    ):
        push.add_recipe(blake3(file_content).digest(), _chunks(recipe), last=True)
    for name, piece in ((blake3(PIECES[0]).digest(), bad), (blake3(extra).digest(), extra)):
        push.receive([ContentsMessage([name], [len(piece)], piece, False)])
    with pytest.raises(Invalid):
        push.receive([ContentsMessage([blake3(PIECES[0]).digest()], [len(bad)], bad, False)])
    push.commit(1, Author("me", 2.0), allow_many_removals=True)
    push.close()
    assert [(files.tree / f"f{number}").read_bytes() for number in range(2)] == file_contents
    files.close()


def test_files_that_grow_in_turn_hold_few_buffers_and_become_complete(tmp_path: Path) -> None:
    files = _find_open(tmp_path)
    push, file_contents = (
        Push(files, 1),
        [bytes([n]) + FILE_CONTENT for n in range(MAX_ACTIVE_ASSEMBLIES + 3)],
    )
    digests = [blake3(file_content).digest() for file_content in file_contents]
    push.add_changes(_entries(file_contents))
    for digest, file_content in zip(digests, file_contents, strict=True):
        push.add_recipe(digest, _chunks([file_content[:600_001], *PIECES[1:]]), last=True)
    for index in range(4):
        for file_content in file_contents:
            piece = [file_content[:600_001], *PIECES[1:]][index]
            push.receive([ContentsMessage([blake3(piece).digest()], [len(piece)], piece, False)])
            holding = [item for item in push._assemblies.values() if item.stream._writer]
            assert len(holding) <= MAX_ACTIVE_ASSEMBLIES
    push.commit(0, Author("me", 1.0), allow_many_removals=True)
    push.close()
    for number, file_content in enumerate(file_contents):
        assert (files.tree / f"f{number}").read_bytes() == file_content[:600_001] + b"".join(
            PIECES[1:]
        )
    files.close()


def test_a_file_may_have_more_sources_than_are_open_at_once(tmp_path: Path) -> None:
    files = _find_open(tmp_path)
    ends = [blake3(bytes([n])).digest(300_000) for n in range(MAX_OPEN + 4)]
    pieces = [piece for end in ends for piece in (end[:150_000], end[150_000:])]
    older = [end + bytes(900_000) for end in ends]
    push, zeros = Push(files, 1), bytes(900_000)
    push.add_changes(_entries(older))
    for file_content in older:
        recipe = [file_content[:150_000], file_content[150_000:300_000], zeros]
        for missing_digest in push.add_recipe(
            blake3(file_content).digest(), _chunks(recipe), last=True
        ):
            piece = next(item for item in recipe if blake3(item).digest() == missing_digest)
            push.receive([ContentsMessage([missing_digest], [len(piece)], piece, False)])
    push.commit(0, Author("me", 1.0), allow_many_removals=True)
    push.close()
    new, digest = _wanting(files, b"".join(pieces))
    assert new.add_recipe(digest, _chunks(pieces), last=True) == []
    new.commit(1, Author("me", 2.0), allow_many_removals=True)
    assert len(new._sources._open) <= MAX_OPEN
    new.close()
    assert (files.tree / "big").read_bytes() == b"".join(pieces)
    files.close()


@pytest.mark.parametrize("recipe", [PIECES[:3], [*PIECES, b"more"]])
def test_a_recipe_whose_size_differs_from_its_entry_is_refused(
    tmp_path: Path, recipe: list[bytes]
) -> None:
    files = _find_open(tmp_path)
    push, digest = _wanting(files, FILE_CONTENT)
    with pytest.raises(Invalid, match="its entry"):
        push.add_recipe(digest, _chunks(recipe), last=True)
    push.close()
    files.close()


def test_chunks_that_form_another_file_are_refused(tmp_path: Path) -> None:
    files = _find_open(tmp_path)
    with pytest.raises(Conflict, match="do not match its digest"):
        _push(files, FILE_CONTENT[:-1] + b"x", [0, 1, 2, 3])
    assert not (files.tree / "big").exists()
    files.close()


@pytest.mark.parametrize(
    ("order", "refusal"),
    [
        pytest.param([0, 1, 2, 3], Conflict, id="in order: at the end, by the whole file"),
        pytest.param([1, 0, 2, 3], Invalid, id="in another order: at once, by itself"),
    ],
)
def test_a_chunk_that_does_not_match_its_digest_is_refused(
    tmp_path: Path, order: list[int], refusal: type[Exception]
) -> None:
    files = _find_open(tmp_path)
    with pytest.raises(refusal):
        _push(files, FILE_CONTENT, order, wrong=1)
    assert not (files.tree / "big").exists()
    _push(files, FILE_CONTENT, [0, 1, 2, 3])
    assert (files.tree / "big").read_bytes() == FILE_CONTENT
    files.close()


def _find_open(root: Path) -> WorkspaceFiles:
    make_directories(root / "u" / "w", 0)
    files = WorkspaceFiles(root / "u" / "w", 0)
    apply.recover(files)
    return files


def _chunks(pieces: Sequence[bytes]) -> list[Chunk]:
    return [Chunk(blake3(piece).digest(), len(piece)) for piece in pieces]


def _entries(file_contents: Sequence[bytes]) -> list[Entry]:
    return [
        Entry(
            f"f{number}", EntryKind.FILE, False, len(file_content), 1, blake3(file_content).digest()
        )
        for number, file_content in enumerate(file_contents)
    ]


def _wanting(files: WorkspaceFiles, claimed: bytes) -> tuple[Push, bytes]:
    """Start a push of one file. Return the push and the digest of the file."""
    push, digest = Push(files, 1), blake3(claimed).digest()
    push.add_changes([Entry("big", EntryKind.FILE, False, len(claimed), 1, digest)])
    return push, digest


def _push(files: WorkspaceFiles, claimed: bytes, order: list[int], wrong: int = -1) -> None:
    push, digest = _wanting(files, claimed)
    try:
        push.add_recipe(digest, _chunks(PIECES), last=True)
        for number in order:
            name, piece = blake3(PIECES[number]).digest(), PIECES[number]
            piece = piece[::-1] if number == wrong else piece
            push.receive([ContentsMessage([name], [len(piece)], piece, False)])
        push.commit(0, Author("me", 1.0), allow_many_removals=True)
    finally:
        push.close()
