"""Packs file contents into messages. They are compressed if that saves bytes."""

from __future__ import annotations

from collections.abc import Sequence

import zstandard

from hai_sync.errors import ProtocolViolation

BATCH_BYTES = 3 << 20
MAX_CHUNKS_BYTES = (4 << 20) - (16 << 10)
"""The maximum size of the chunks in a message. The rest of 4 MB is for their digests."""

MESSAGE_BYTES = 16 << 20
"""The maximum size of decompressed data, whatever a message claims."""

_PROBE_BYTES = 64 << 10
_LEVEL = 1


def compress(data: bytes, allowed: bool) -> tuple[bytes, bool]:
    """Return the data and whether they are compressed, which is so only if a sample compresses well."""
    if not allowed or len(data) < 512:
        return data, False
    probe = data[len(data) // 2 :][:_PROBE_BYTES]
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    if len(compressor.compress(probe)) > len(probe) * 0.9:
        return data, False
    small = compressor.compress(data)
    return (small, True) if len(small) < len(data) else (data, False)


def decompress(data: bytes, sizes: Sequence[int], compressed: bool) -> bytes:
    """Return the original data. Raises ProtocolViolation if they do not have the announced size."""
    total = sum(sizes)
    if any(size < 0 for size in sizes) or total > MESSAGE_BYTES:
        raise ProtocolViolation(
            f"the server sent a message of {total} bytes; at most {MESSAGE_BYTES} are allowed"
        )
    if compressed:
        try:
            # the library trusts this size more than max_output_size
            claimed = zstandard.frame_content_size(data)
            if claimed > total:
                raise ProtocolViolation(
                    f"the server sent {claimed} bytes compressed where it said {total}"
                )
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=total + 1)
        except zstandard.ZstdError as error:
            raise ProtocolViolation(
                f"the server sent data that cannot be decompressed: {error}"
            ) from error
    if len(data) != total:
        raise ProtocolViolation(f"the server sent {len(data)} bytes where it said {total}")
    return data
