"""Large files without the page cache: bytes count as written only once they are in the file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from blake3 import blake3

from hai_backend.workspaces.chunks.streamed_file import ChunkPosition, StreamedFile
from hai_backend.workspaces.storage import direct_io
from hai_backend.workspaces.storage.direct_io import DirectReader, DirectWriter

BLOCK = 8192
DATA = blake3(b"data").digest(5 * BLOCK + 123)
FILE = b"f" * 32


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_io, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(direct_io, "_CACHED_READ_BYTES", 1000)


def create(path: Path) -> Callable[[], int]:
    return lambda: os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def cut(sizes: Sequence[int]) -> list[bytes]:
    positions, offset = [], 0
    for size in sizes:
        positions.append(DATA[offset : offset + size])
        offset += size
    return positions


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([10], id="less than a block"),
        pytest.param([BLOCK], id="a block"),
        pytest.param([BLOCK, BLOCK, 1], id="blocks and a byte"),
        pytest.param([1, 3 * BLOCK], id="more than a block at once"),
        pytest.param([700] * 50, id="many"),
        pytest.param([0, 100, 0], id="nothing among them"),
    ],
)
@pytest.mark.parametrize("begin", [0, 5])
def test_added_bytes_are_in_the_file(tmp_path: Path, sizes: list[int], begin: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"before")
    made = DirectWriter(create(path)(), begin)
    for piece in cut(sizes):
        made.add(memoryview(piece))
    made.finish()
    made.close()
    total = sum(sizes)
    assert path.read_bytes()[begin : begin + total] == DATA[:total]
    assert path.read_bytes()[:begin] == b"before"[:begin]
    assert made.written == begin + total


def test_parts_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(DATA)
    parts = [(0, BLOCK), (1, BLOCK), (4096, 4096), (4095, 2), (7, 0), (5 * BLOCK, 500)]
    with open(path, "rb") as file:
        read = [
            bytes(part) for part in DirectReader().read((file.fileno(), *part) for part in parts)
        ]
    assert read == [DATA[begin : begin + size] for begin, size in parts]


@pytest.mark.parametrize("verb", ["pwrite", "preadv"])
def test_a_disk_with_another_alignment_is_accessed_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    done, refused = getattr(os, verb), []

    def once(*args: object) -> object:
        if not refused:
            refused.append(args)
            raise OSError(errno.EINVAL, "Invalid argument")
        return done(*args)

    monkeypatch.setattr(os, verb, once)
    path = tmp_path / "f"
    made = DirectWriter(create(path)(), 0)
    made.add(memoryview(DATA))
    made.finish()
    with open(path, "rb") as file:
        assert bytes(next(DirectReader().read([(file.fileno(), 0, BLOCK)]))) == DATA[:BLOCK]
    made.close()
    assert path.read_bytes() == DATA
    assert refused


def test_only_bytes_in_the_file_count_as_written(tmp_path: Path) -> None:
    positions = [
        ChunkPosition(FILE, at, bytes([at // 4000]) * 32, 4000) for at in range(0, 20_000, 4000)
    ]
    contents = {
        position.digest: memoryview(DATA)[position.offset : position.offset + 4000]
        for position in positions
    }
    stream = StreamedFile(create(tmp_path / "f"))
    assert stream.write_next(positions, contents) == []
    written = stream.take_written()  # the last blocks may still be pending
    assert [*positions[: len(written)]] == written
    assert len(written) < len(positions)
    stream.finish()
    assert written + stream.take_written() == positions
    assert (tmp_path / "f").read_bytes() == DATA[:20_000]
    assert stream.is_complete(blake3(DATA[:20_000]).digest(), 20_000)


def test_chunks_out_of_order_are_returned(tmp_path: Path) -> None:
    first, third = ChunkPosition(FILE, 0, b"1" * 32, 10), ChunkPosition(FILE, 20, b"3" * 32, 10)
    contents = {position.digest: memoryview(DATA)[:10] for position in (first, third)}
    stream = StreamedFile(create(tmp_path / "f"))
    assert stream.write_next([first, third], contents) == [third]
    stream.finish()
    assert not stream.is_complete(blake3(DATA[:30]).digest(), 30)


def test_the_failure_of_a_write_is_raised_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, failures = os.pwrite, [OSError(errno.ENOSPC, "No space left on device")]

    def full_once(file: int, data: memoryview, offset: int) -> int:
        if failures:
            raise failures.pop()
        return pwrite(file, data, offset)

    monkeypatch.setattr(os, "pwrite", full_once)
    stream = StreamedFile(create(tmp_path / "f"))
    everything = ChunkPosition(FILE, 0, b"1" * 32, 3 * BLOCK)
    with pytest.raises(OSError, match="No space"):
        stream.write_next([everything], {everything.digest: memoryview(DATA)[: 3 * BLOCK]})
    with pytest.raises(OSError, match="No space"):
        stream.finish()
    assert stream.take_written() == []
