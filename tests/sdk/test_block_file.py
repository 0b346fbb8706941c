"""A BlockFile writes the same content as a plain file, and its digest is that of the content."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hai.task import block_file
from hai.task.block_file import BlockFile, Span, digest_of, read_spans

BLOCK = 64


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "BLOCK_BYTES", BLOCK)


def expected_digest(content: bytes) -> str:
    blocks = [content[at : at + BLOCK] for at in range(0, max(len(content), 1), BLOCK)]
    digests = [hashlib.sha256(block) for block in blocks]
    if len(blocks) == 1:
        return digests[0].hexdigest()
    return "t" + hashlib.sha256(b"".join(each.digest() for each in digests)).hexdigest()


OFFSETS = st.integers(0, 6 * BLOCK)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.binary(max_size=12 * BLOCK)),
    st.tuples(st.just("overwrite"), OFFSETS, st.binary(max_size=2 * BLOCK)),
    st.tuples(st.just("read"), OFFSETS, st.integers(0, 2 * BLOCK)),
    st.tuples(st.just("truncate"), OFFSETS),
    st.tuples(st.just("flush")),
)


def apply(file: io.RawIOBase | io.BytesIO, operation: tuple) -> object:
    match operation:
        case ("append", data):
            file.seek(0, os.SEEK_END)
            return file.write(data)
        case ("overwrite", offset, data):
            file.seek(offset)
            return file.write(data), file.tell()
        case ("read", offset, size):
            file.seek(offset)
            return file.read(size)
        case ("truncate", size):
            old = file.seek(0, os.SEEK_END)
            file.truncate(size)
            if isinstance(file, io.BytesIO):  # BytesIO.truncate cannot enlarge
                file.seek(0, os.SEEK_END)
                file.write(bytes(max(size - old, 0)))
            return file.seek(0, os.SEEK_END)
    return file.flush()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(OPERATIONS, max_size=12))
def test_any_operations_give_the_content_of_a_plain_file(tmp_path: Path, operations: list) -> None:
    path, plain = tmp_path / "file", io.BytesIO()
    with path.open("w+b", buffering=0) as file, BlockFile(file) as blocks:
        for operation in operations:
            assert apply(blocks, operation) == apply(plain, operation), operation
        digest = blocks.finish()
        assert digest == expected_digest(plain.getvalue()) == digest_of(file)
    assert path.read_bytes() == plain.getvalue()


def test_a_zip_archive_that_rewrites_its_headers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w+b", buffering=0) as file, BlockFile(file) as blocks:
        with zipfile.ZipFile(blocks, "w") as archive:
            archive.writestr("a", b"x" * 5 * BLOCK)
            archive.writestr("b", b"y")
        digest = blocks.finish()
    assert digest == expected_digest(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_a_failed_write_is_raised_at_the_latest_by_finish(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()

    def write_and_finish(blocks: BlockFile) -> None:
        for _ in range(100):
            blocks.write(bytes(BLOCK))
        blocks.finish()

    with (
        path.open("rb", buffering=0) as read_only,
        BlockFile(read_only) as blocks,
        pytest.raises(OSError, match="Bad file descriptor"),
    ):
        write_and_finish(blocks)


@given(
    content=st.binary(min_size=1, max_size=6 * BLOCK),
    parts=st.lists(st.tuples(OFFSETS, st.integers(0, 6 * BLOCK)), max_size=5),
    changed=st.none() | OFFSETS,
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_spans_are_read_and_their_blocks_verified(tmp_path, content, parts, changed):
    path = tmp_path / "file"
    with path.open("w+b", buffering=0) as file, BlockFile(file) as blocks:
        blocks.write(content)
        digests = blocks.finish_blocks()
    damaged = bytearray(content)
    if changed is not None and changed < len(content):
        damaged[changed] ^= 1
    path.write_bytes(damaged)
    spans = [
        Span(start, memoryview(bytearray(min(size, len(content) - start))))
        for start, size in parts
        if start < len(content)
    ]
    read = {
        number
        for span in spans
        if span.memory
        for number in range(span.start // BLOCK, (span.end - 1) // BLOCK + 1)
    }
    with path.open("rb", buffering=0) as file:
        intact = read_spans(file, spans, digests, BLOCK)
    assert intact == all(
        damaged[n * BLOCK : (n + 1) * BLOCK] == content[n * BLOCK : (n + 1) * BLOCK] for n in read
    )
    if intact:
        assert [bytes(s.memory) for s in spans] == [content[s.start : s.end] for s in spans]
