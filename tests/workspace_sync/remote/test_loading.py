"""What is read to be sent: the digest of a large file is of its bytes, however late the other core hashes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from blake3 import blake3

from hai_sync.core.chunks import BLOCK_BYTES
from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry, Kind
from hai_sync.remote import loading


class Late:
    """Hashes when somebody waits for it, and not before."""

    def submit(self, work: Callable[[memoryview], object], block: memoryview) -> Future[object]:
        future = Future[object]()
        future.result = lambda timeout=None: work(block)  # type: ignore[method-assign]
        return future


@pytest.mark.parametrize("late", [False, True])
def test_the_memory_of_a_block_is_not_used_again_before_it_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    if late:
        monkeypatch.setattr(loading, "_hashing", Late())
    data = random.Random(3).randbytes(4 * BLOCK_BYTES + 777)
    (tmp_path / "f").write_bytes(data)
    change = Change("f", None, Entry(Kind.FILE, size=len(data)))
    batch = loading.load(tmp_path, [change], {}, {})
    assert list(batch.large) == [blake3(data).digest()]
    whole = batch.large[blake3(data).digest()]
    assert [blake3(data[p.offset :][: p.size]).digest() for p in whole.pieces()] == [
        piece.digest for piece in whole.pieces()
    ]
