"""Cuts large contents where they say so themselves, so that an insertion moves no later cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from blake3 import blake3

if TYPE_CHECKING:
    from pyfastcdc import FastCDC

WHOLE_BYTES = 1 << 20
"""Files up to this size travel whole, larger ones in chunks."""

SMALLEST, AVERAGE, LARGEST = 16 << 10, 64 << 10, 256 << 10
BLOCK_BYTES = 8 << 20


@cache
def _cutter() -> FastCDC:
    from pyfastcdc import FastCDC  # most pushes have no large files

    return FastCDC(avg_size=AVERAGE, min_size=SMALLEST, max_size=LARGEST)


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk, without its bytes."""

    digest: bytes
    offset: int
    size: int


def digest_of(data: bytes | memoryview) -> bytes:
    """The name of a content."""
    return blake3(data).digest()


def cut(read: Callable[[int], bytes]) -> Iterator[tuple[Piece, memoryview]]:
    """Chunks with their bytes. The same content is cut the same, however it is read."""
    offset, rest = 0, b""
    while True:
        block = _fill(read, BLOCK_BYTES - len(rest))
        last = len(block) < BLOCK_BYTES - len(rest)
        data = rest + block if rest else block
        used = 0
        for chunk in _cutter().cut_buf(data):
            end = chunk.offset + chunk.length
            if end > len(data) - LARGEST and not last:
                break  # its end may be that of the block only
            yield Piece(digest_of(chunk.data), offset + chunk.offset, chunk.length), chunk.data
            used = end
        offset, rest = offset + used, data[used:]
        if last:
            return


def _fill(read: Callable[[int], bytes], size: int) -> bytes:
    """As many bytes as there are, up to the size: a file may give fewer at a time."""
    parts, got = [], 0
    while got < size and (part := read(size - got)):
        parts.append(part)
        got += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
