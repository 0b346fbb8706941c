"""Splits the data of one push message into contents, and verifies the contents against their digests.

If a whole file is hashed while its chunks arrive, the hash of the file verifies them, and `verify` is not called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import zstandard
from blake3 import blake3

from hai_backend.domain.errors import Invalid, Violation

MESSAGE_BYTES = 16 << 20  # limit of one message, after decompression


@dataclass(frozen=True, slots=True)
class ContentsMessage:
    """The contents of one message: digests, sizes, and the concatenated data."""

    digests: Sequence[bytes]
    sizes: Sequence[int]
    data: bytes | memoryview
    compressed: bool


def split(message: ContentsMessage) -> list[tuple[bytes, memoryview]]:
    """Return each content with the digest that the message claims. Raise Invalid if sizes and data do not match."""
    return list(_split(message, memoryview(_uncompressed(message))))


def verify(contents: Iterable[tuple[bytes, memoryview]]) -> None:
    """Raise Invalid if a content does not match its digest."""
    wrong = [digest for digest, content in contents if blake3(content).digest() != digest]
    if wrong:
        raise bad_contents_error(
            f"{len(wrong)} contents do not match their digests, such as {wrong[0].hex()}"
        )


def _uncompressed(message: ContentsMessage) -> bytes | memoryview:
    """Return the uncompressed data. Do not decompress a message that claims more than the limit."""
    total = sum(message.sizes)
    if len(message.digests) != len(message.sizes):
        raise bad_contents_error(
            f"{len(message.digests)} digests come with {len(message.sizes)} sizes"
        )
    if any(size < 0 for size in message.sizes):
        raise bad_contents_error(f"a size is negative: {min(message.sizes)}")
    if total > MESSAGE_BYTES:
        raise bad_contents_error(
            f"a message of {total} bytes; at most {MESSAGE_BYTES} are accepted"
        )
    data = _decompress(message.data, total) if message.compressed else message.data
    if len(data) != total:
        raise bad_contents_error(f"the data has {len(data)} bytes, but the sizes add up to {total}")
    return data


def _decompress(data: bytes | memoryview, total: int) -> bytes:
    try:
        # zstandard allocates the size that the data claims, even if max_output_size is smaller.
        claimed = zstandard.frame_content_size(data)
        if claimed > total:
            raise bad_contents_error(
                f"the data claims {claimed} bytes after decompression, but the sizes add up to {total}"
            )
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=total + 1)
    except zstandard.ZstdError as error:
        raise bad_contents_error(f"cannot be decompressed to {total} bytes: {error}") from error


def _split(message: ContentsMessage, data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    offset = 0
    for digest, size in zip(message.digests, message.sizes, strict=True):
        yield digest, data[offset : offset + size]
        offset += size


def bad_contents_error(problem: str) -> Invalid:
    return Invalid((Violation("contents", problem),), reason="BAD_CONTENTS")
