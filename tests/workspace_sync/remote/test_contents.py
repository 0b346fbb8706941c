"""Tests that received data are decompressed only within the announced sizes."""

from __future__ import annotations

import resource

import pytest
import zstandard

from hai_sync.errors import ProtocolViolation
from hai_sync.remote.contents import compress, decompress


@pytest.mark.parametrize("data", [b"", b"few", b"much " * 100_000])
def test_compressed_data_is_restored(data: bytes) -> None:
    small, compressed = compress(data, allowed=True)
    assert decompress(small, [len(data)], compressed) == data


def test_data_larger_than_announced_are_refused() -> None:
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(256 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProtocolViolation, match="268435456 bytes compressed where it said 100"):
        decompress(bomb, [100], True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
