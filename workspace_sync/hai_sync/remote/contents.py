"""Contents in messages: several small ones together, compressed where that pays."""

from __future__ import annotations

from collections.abc import Sequence

import zstandard

from hai_sync.errors import BadPeer

BATCH_BYTES = 3 << 20
CHUNKS_BYTES = (4 << 20) - (16 << 10)
"""Of chunks in a message, at most: for each the server goes to storage and back. Their names have the rest of 4 MB."""

MESSAGE_BYTES = 16 << 20
"""More than this is never unpacked, whatever a message claims."""

_PROBE_BYTES = 64 << 10
_LEVEL = 1


def packed(data: bytes, compress: bool) -> tuple[bytes, bool]:
    """The data, smaller if a look at a part of them promises that."""
    if not compress or len(data) < 512:
        return data, False
    probe = data[len(data) // 2 :][:_PROBE_BYTES]
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    if len(compressor.compress(probe)) > len(probe) * 0.9:
        return data, False
    small = compressor.compress(data)
    return (small, True) if len(small) < len(data) else (data, False)


def unpacked(data: bytes, sizes: Sequence[int], compressed: bool) -> bytes:
    """The data as they were. Raises BadPeer unless they are of the size that is claimed."""
    total = sum(sizes)
    if any(size < 0 for size in sizes) or total > MESSAGE_BYTES:
        raise BadPeer(f"the server sent a message of {total} bytes; {MESSAGE_BYTES} is the most")
    if compressed:
        try:
            told = zstandard.frame_content_size(data)  # believed by the library, whatever we allow
            if told > total:
                raise BadPeer(f"the server sent {told} bytes compressed where it said {total}")
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=total + 1)
        except zstandard.ZstdError as error:
            raise BadPeer(f"the server sent data that cannot be decompressed: {error}") from error
    if len(data) != total:
        raise BadPeer(f"the server sent {len(data)} bytes where it said {total}")
    return data
