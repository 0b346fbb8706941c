"""Large files whose chunks come in order are hashed on their way to the disk; any other is read at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from blake3 import blake3

from hai_backend.domain.errors import Conflict, Invalid
from hai_backend.domain.workspace import Chunk, Entry, EntryKind
from hai_backend.workspaces import applying, chunks
from hai_backend.workspaces.files import Files, make
from hai_backend.workspaces.pushing import Push
from hai_backend.workspaces.receiving import Piece
from hai_backend.workspaces.staging import Author

PIECES = [blake3(bytes([number])).digest(600_000 + number) for number in range(4)]
WHOLE = b"".join(PIECES)


@pytest.mark.parametrize(
    ("order", "reads"),
    [
        pytest.param([0, 1, 2, 3], 0, id="in order"),
        pytest.param([0, 2, 1, 3], 1, id="in another order"),
        pytest.param([1, 2, 3, 0], 1, id="the first one last"),
        pytest.param([0, 0, 1, 2, 3], 0, id="one twice"),
    ],
)
def test_a_file_is_read_again_only_if_it_came_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: list[int], reads: int
) -> None:
    read: list[int] = []
    digest_of = chunks.digest_of
    monkeypatch.setattr(chunks, "digest_of", lambda file: read.append(file) or digest_of(file))
    files = _opened(tmp_path)
    _push(files, WHOLE, order)
    assert (files.tree / "big").read_bytes() == WHOLE
    assert len(read) == reads
    files.close()


def test_chunks_in_order_that_make_another_file_are_refused(tmp_path: Path) -> None:
    files = _opened(tmp_path)
    with pytest.raises(Conflict, match="do not make that file"):
        _push(files, WHOLE[:-1] + b"x", [0, 1, 2, 3])
    assert not (files.tree / "big").exists()
    files.close()


@pytest.mark.parametrize(
    ("order", "refusal"),
    [
        pytest.param([0, 1, 2, 3], Conflict, id="in order: at the end, by the whole file"),
        pytest.param([1, 0, 2, 3], Invalid, id="in another order: at once, by itself"),
    ],
)
def test_a_chunk_that_is_not_what_its_digest_says_is_refused(
    tmp_path: Path, order: list[int], refusal: type[Exception]
) -> None:
    files = _opened(tmp_path)
    with pytest.raises(refusal):
        _push(files, WHOLE, order, wrong=1)
    assert not (files.tree / "big").exists()
    _push(files, WHOLE, [0, 1, 2, 3])
    assert (files.tree / "big").read_bytes() == WHOLE
    files.close()


def _opened(root: Path) -> Files:
    make(root / "u" / "w", 0)
    files = Files(root / "u" / "w", 0)
    applying.recover(files)
    return files


def _push(files: Files, claimed: bytes, order: list[int], wrong: int = -1) -> None:
    digest = blake3(claimed).digest()
    push = Push(files, 1)
    try:
        push.want([Entry("big", EntryKind.FILE, False, len(claimed), 1, digest)])
        push.recipe(digest, [Chunk(blake3(p).digest(), len(p)) for p in PIECES], last=True)
        for number in order:
            name, piece = blake3(PIECES[number]).digest(), PIECES[number]
            piece = piece[::-1] if number == wrong else piece
            push.receive([Piece([name], [len(piece)], piece, False)])
        push.commit(0, Author("me", 1.0), allow_many_removals=True)
    finally:
        push.close()
