"""Tests of reading files to push: large ones become chunks, unless they have changed meanwhile."""

from __future__ import annotations

import os
import random
from itertools import accumulate
from pathlib import Path

import pytest
from blake3 import blake3

from hai_backend.api.request.limits import CallLimits
from hai_sync.core.chunks import BLOCK_BYTES, LARGEST, SMALLEST, ChunkRef
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind
from hai_sync.errors import FileChanged
from hai_sync.remote import messages, upload_reader
from hai_sync.remote.contents import MAX_CHUNKS_BYTES
from hai_sync.remote.upload_reader import LargeFile, chunk_groups, read_batch, recipe_parts

DATA = random.Random(3).randbytes(4 * BLOCK_BYTES + 777)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LargeFile:
    monkeypatch.setattr(upload_reader, "_MAX_CHUNKS", 20)
    (tmp_path / "f").write_bytes(DATA)
    change = Change("f", None, Entry(Kind.FILE, size=len(DATA)))
    batch = read_batch(tmp_path, [change], {}, {})
    return batch.large[blake3(DATA).digest()]


def test_recipe_parts_cover_the_file_with_correct_digests(tmp_path: Path, large: LargeFile) -> None:
    chunks = [chunk for part in recipe_parts(tmp_path, large) for chunk in part.chunks]
    assert len(list(recipe_parts(tmp_path, large))) > 5
    assert sum(chunk.size for chunk in chunks) == large.entry.size == len(DATA)
    assert [chunk.offset for chunk in chunks] == [0, *accumulate(p.size for p in chunks)][:-1]
    data = memoryview(DATA)
    assert all(blake3(data[p.offset :][: p.size]).digest() == p.digest for p in chunks)


@pytest.mark.parametrize("size", [1, len(DATA) // 2, len(DATA) + 1, 2 * len(DATA)])
def test_a_file_with_a_new_size_raises_file_changed(
    tmp_path: Path, large: LargeFile, size: int
) -> None:
    os.truncate(tmp_path / "f", size)
    reported: list[int] = []
    with pytest.raises(FileChanged):
        reported.extend(
            chunk.size for part in recipe_parts(tmp_path, large) for chunk in part.chunks
        )
    assert sum(reported) <= large.entry.size


def test_a_file_that_was_written_raises_file_changed(tmp_path: Path, large: LargeFile) -> None:
    os.utime(tmp_path / "f", ns=(1, 1))
    with pytest.raises(FileChanged):
        list(recipe_parts(tmp_path, large))


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(
            [MAX_CHUNKS_BYTES - LARGEST - 1, LARGEST], id="just not enough, and the largest"
        ),
        pytest.param([SMALLEST] * 1000, id="the smallest"),
        pytest.param([LARGEST] * 9, id="the largest"),
    ],
)
def test_messages_of_chunks_stay_within_the_limit(sizes: list[int]) -> None:
    names = [number.to_bytes(32, "big") for number in range(len(sizes))]
    chunks = [ChunkRef(name, 0, size) for name, size in zip(names, sizes, strict=True)]
    groups = list(chunk_groups(chunks, set(names)))
    assert [chunk for group in groups for chunk in group] == chunks
    for group in groups:
        data = [bytes(chunk.size) for chunk in group]
        message = messages.contents([p.digest for p in group], [p.size for p in group], data, False)
        assert len(message) <= CallLimits().message_bytes
