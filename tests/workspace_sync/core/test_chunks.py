"""Tests of chunks: equal contents are cut equally, and an insertion changes few chunks."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_sync.core.chunks import BLOCK_BYTES, LARGEST, SMALLEST, compute_digest, cut

DATA = random.Random(1).randbytes(BLOCK_BYTES * 2 + 12_345)


def pieces(data: bytes) -> list[tuple[bytes, int, int]]:
    return [(p.digest, p.offset, p.size) for p, _ in cut(io.BytesIO(data).readinto)]


@pytest.mark.parametrize("size", [0, 1, SMALLEST, LARGEST, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_chunks_cover_the_content_without_overlap(size: int) -> None:
    found = [(piece, bytes(data)) for piece, data in cut(io.BytesIO(DATA[:size]).readinto)]
    assert b"".join(data for _, data in found) == DATA[:size]
    assert all(compute_digest(DATA[p.offset : p.offset + p.size]) == p.digest for p, _ in found)
    assert all(p.size <= LARGEST for p, _ in found)


@settings(max_examples=4, deadline=None)
@given(st.integers(100_000, 3_000_000))
def test_cuts_do_not_depend_on_the_sizes_of_reads(step: int) -> None:
    stream = io.BytesIO(DATA)
    few = [
        (p.digest, p.offset, p.size) for p, _ in cut(lambda block: stream.readinto(block[:step]))
    ]
    assert few == pieces(DATA)


@pytest.mark.parametrize("expected_bytes", [0, 3_000_000, len(DATA), 10 * len(DATA)])
def test_cuts_do_not_depend_on_the_expected_size(expected_bytes: int) -> None:
    found = [
        (p.digest, p.offset, p.size) for p, _ in cut(io.BytesIO(DATA).readinto, expected_bytes)
    ]
    assert found == pieces(DATA)


def test_an_insertion_changes_few_chunks() -> None:
    changed = DATA[:1_000_000] + b"x" * 4096 + DATA[1_000_000:]
    new = {digest for digest, _, _ in pieces(changed)} - {digest for digest, _, _ in pieces(DATA)}
    assert len(new) <= 4
