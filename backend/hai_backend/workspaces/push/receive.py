"""Contents of one message: taken apart within the sizes that they claim, and compared with their digests.

Chunks whose whole file is hashed anyway, as it comes, are compared with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import zstandard
from blake3 import blake3

from hai_backend.domain.errors import Invalid, Violation

MESSAGE_BYTES = 16 << 20  # of one message, after decompression


@dataclass(frozen=True, slots=True)
class Piece:
    """Contents of one message: digests, sizes, and the data one behind the other."""

    digests: Sequence[bytes]
    sizes: Sequence[int]
    data: bytes | memoryview
    compressed: bool


def cut(piece: Piece) -> list[tuple[bytes, memoryview]]:
    """Each content with the digest that it claims. Raises Invalid if the message is not what it says of itself."""
    return list(_cut(piece, memoryview(_plain(piece))))


def verify(contents: Iterable[tuple[bytes, memoryview]]) -> None:
    """Raises Invalid if one is not what its digest says."""
    bad = [digest for digest, content in contents if blake3(content).digest() != digest]
    if bad:
        raise bad_contents(f"{len(bad)} contents are not what their digests say, as {bad[0].hex()}")


def _plain(piece: Piece) -> bytes | memoryview:
    """The data as they were. What claims to be more than a message may hold is not unpacked at all."""
    total = sum(piece.sizes)
    if len(piece.digests) != len(piece.sizes) or any(size < 0 for size in piece.sizes):
        raise bad_contents(f"{len(piece.digests)} digests come with {len(piece.sizes)} sizes")
    if total > MESSAGE_BYTES:
        raise bad_contents(f"a message of {total} bytes; at most {MESSAGE_BYTES} are taken")
    data = _decompressed(piece.data, total) if piece.compressed else piece.data
    if len(data) != total:
        raise bad_contents(f"{len(data)} bytes; their sizes say {total}")
    return data


def _decompressed(data: bytes | memoryview, total: int) -> bytes:
    try:
        told = zstandard.frame_content_size(data)  # believed by the library, whatever we allow
        if told > total:
            raise bad_contents(f"{told} bytes compressed; their sizes say {total}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=total + 1)
    except zstandard.ZstdError as error:
        raise bad_contents(f"cannot be decompressed to {total} bytes: {error}") from error


def _cut(piece: Piece, data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    place = 0
    for digest, size in zip(piece.digests, piece.sizes, strict=True):
        yield digest, data[place : place + size]
        place += size


def bad_contents(problem: str) -> Invalid:
    """What is wrong with a message."""
    return Invalid((Violation("contents", problem),), reason="BAD_CONTENTS")
