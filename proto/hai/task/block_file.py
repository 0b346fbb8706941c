"""Files that are written and read in blocks. Threads compute the digest meanwhile.

The digest of a file of at most one block is the SHA-256 of its content. The digest of a larger file is the letter `t`
and the SHA-256 of the concatenated SHA-256 digests of its blocks, so threads can hash blocks in any order. Earlier
releases used the SHA-256 of the content for every file.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

TYPE_CHECKING = False  # type checkers assume True
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Buffer

BLOCK_BYTES = 16 << 20
DIGEST_PATTERN = "t?[0-9a-f]{64}"
_TREE = "t"
_THREADS = max(2, min(8, os.cpu_count() or 1))


def digest_of(file: io.FileIO) -> str:
    """Return the digest of an open file. Threads read and hash its blocks."""
    offsets = range(0, max(os.fstat(file.fileno()).st_size, 1), BLOCK_BYTES)
    with ThreadPoolExecutor(_THREADS, "digest") as threads:
        return _combine(threads.map(lambda start: _hash_block(file.fileno(), start), offsets))


def is_intact(file: io.FileIO, digest: str) -> bool:
    """Return whether an open file has this digest, or the digest of an earlier release."""
    if digest.startswith(_TREE):
        return digest_of(file) == digest
    return hashlib.file_digest(file, "sha256").hexdigest() == digest


def read_intact(file: io.FileIO, digest: str) -> memoryview | None:
    """Read an open file into writable memory, and verify its digest. Return None if the digest is different."""
    size = os.fstat(file.fileno()).st_size
    content = memoryview(mmap.mmap(-1, max(size, 1)))[:size]
    found = _read_into(file, content)
    if not digest.startswith(_TREE):
        found = hashlib.sha256(content).hexdigest()
    return content if found == digest else None


@dataclass(frozen=True, eq=False)
class Span:
    """Bytes of a file from `start` on, and the writable memory for them."""

    start: int
    memory: memoryview

    @property
    def end(self) -> int:
        return self.start + len(self.memory)


def read_spans(
    file: io.FileIO, spans: Iterable[Span], digests: Sequence[bytes], block_bytes: int
) -> bool:
    """Read parts of an open file. Return False if a block that contains them does not match its digest.

    Threads read the blocks that contain them, and no others. If the result is False, the memory may have wrong bytes.
    """
    size = os.fstat(file.fileno()).st_size
    by_block: dict[int, list[Span]] = {}
    for span in spans:
        if span.memory:
            for number in range(span.start // block_bytes, (span.end - 1) // block_bytes + 1):
                by_block.setdefault(number, []).append(span)

    def read_block(number: int) -> bool:
        start, end = number * block_bytes, min((number + 1) * block_bytes, size)
        inside = next((s for s in by_block[number] if s.start <= start and end <= s.end), None)
        if inside is not None:  # read it without a copy
            block = inside.memory[start - inside.start : end - inside.start]
        else:
            block = memoryview(bytearray(end - start))
        read_all(file.fileno(), block, start)
        for span in by_block[number]:
            if span is not inside:
                low, high = max(start, span.start), min(end, span.end)
                span.memory[low - span.start : high - span.start] = block[
                    low - start : high - start
                ]
        return hashlib.sha256(block).digest() == digests[number]

    with ThreadPoolExecutor(_THREADS, "digest") as threads:
        return all(threads.map(read_block, by_block))


class SeekableFile(io.RawIOBase):
    """A file for reading and writing that keeps its size and its position."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._position = 0

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if origin + offset < 0:
            raise OSError(22, f"cannot seek to {origin + offset}, before the start of the file")
        self._position = origin + offset
        return self._position


class BlockFile(SeekableFile):
    """A new file for a program to write. Threads write and hash the appended bytes in blocks.

    A program may also seek, read and overwrite, as zipfile does. Blocks that it overwrites are read and hashed again at
    the end. At most about two blocks per thread are in memory. A failed write raises OSError in a later call.
    """

    def __init__(
        self, file: io.FileIO, on_stored: Callable[[int], None] = lambda count: None
    ) -> None:
        """Write to `file`, which must be empty, unbuffered, and open for reading and writing.

        The caller closes it after this object. Threads call `on_stored` with the number of bytes of each block that
        they have written and hashed.
        """
        super().__init__()
        self._on_stored = on_stored
        self._fileno = file.fileno()
        self._threads = ThreadPoolExecutor(_THREADS, "checkpoint")
        self._writes: deque[Future[None]] = deque()
        self._spare: list[memoryview] = []
        self._digests: dict[
            int, bytes
        ] = {}  # by block number; missing ones are computed at the end
        # the last block, which may be filled only in part
        self._block = memoryview(bytearray(BLOCK_BYTES))

    def write(self, data: Buffer) -> int:
        view = memoryview(data)
        if not view.nbytes:
            return 0
        view = view.cast("B")
        if self._position == self.size:
            self._append(view)
        else:
            self._overwrite(view)
        self._position += len(view)
        self.size = max(self.size, self._position)
        return len(view)

    def readinto(self, buffer: Buffer) -> int:
        self._flush_blocks()
        count = os.preadv(self._fileno, [buffer], self._position)
        self._position += count
        return count

    def flush(self) -> None:
        """Write all bytes to the file. Raises OSError, also for an earlier write that has failed."""
        if not self.closed:
            self._flush_blocks()

    def truncate(self, size: int | None = None) -> int:
        """Set the size. Bytes after the new size are removed; added bytes are zero."""
        self._flush_blocks()
        old, self.size = self.size, self._position if size is None else size
        os.ftruncate(self._fileno, self.size)
        self._forget_digests(min(old, self.size), max(old, self.size))
        self._load_last_block()
        return self.size

    def finish(self) -> str:
        """Write the remaining bytes, and return the digest of the file. The bytes are not flushed to disk."""
        return _combine(self.finish_blocks())

    def finish_blocks(self) -> list[bytes]:
        """Write the remaining bytes, and return the SHA-256 of each block. An empty file has one block."""
        self._flush_blocks()
        blocks = range(max(-(-self.size // BLOCK_BYTES), 1))
        missing = [number for number in blocks if number not in self._digests]
        offsets = [number * BLOCK_BYTES for number in missing]
        hashed = self._threads.map(lambda start: _hash_block(self._fileno, start), offsets)
        self._digests.update(zip(missing, hashed, strict=True))
        return [self._digests[number] for number in blocks]

    def close(self) -> None:
        """Stop the threads. Bytes that they have not written are lost; call `finish` first to keep them."""
        self._writes.clear()
        self._threads.shutdown(cancel_futures=True)
        self.size = 0  # so that the flush of the base class writes nothing
        super().close()

    def _append(self, view: memoryview) -> None:
        start, size = 0, self.size
        while start < len(view):
            filled = size % BLOCK_BYTES
            blocks = (len(view) - start) // BLOCK_BYTES
            if filled == 0 and blocks >= _THREADS:
                end = start + blocks * BLOCK_BYTES
                self._store_blocks(size // BLOCK_BYTES, view[start:end])
                start, size = end, size + end - start
                continue
            count = min(len(view) - start, BLOCK_BYTES - filled)
            self._block[filled : filled + count] = view[start : start + count]
            start, size = start + count, size + count
            if size % BLOCK_BYTES == 0:
                self._submit(size // BLOCK_BYTES - 1)

    def _submit(self, number: int) -> None:
        """Pass the full last block to a thread, and continue with an empty block."""
        if len(self._writes) > _THREADS:
            self._writes.popleft().result()
        self._writes.append(self._threads.submit(self._write_block, number, self._block))
        self._block = self._spare.pop() if self._spare else memoryview(bytearray(BLOCK_BYTES))

    def _write_block(self, number: int, block: memoryview) -> None:
        self._store_block(number, block)
        self._spare.append(block)

    def _store_blocks(self, first: int, blocks: memoryview) -> None:
        """Write many blocks from the caller's memory, without a copy, and wait for the threads."""
        count = len(blocks) // BLOCK_BYTES
        parts = (blocks[n * BLOCK_BYTES : (n + 1) * BLOCK_BYTES] for n in range(count))
        for _ in self._threads.map(self._store_block, range(first, first + count), parts):
            pass  # raises the error of a thread

    def _store_block(self, number: int, block: memoryview) -> None:
        write_all(self._fileno, block, number * BLOCK_BYTES)
        self._digests[number] = hashlib.sha256(block).digest()
        self._on_stored(len(block))

    def _flush_blocks(self) -> None:
        """Write all bytes to the file, including those of the last block, which is kept in memory."""
        while self._writes:
            self._writes.popleft().result()
        number, filled = divmod(self.size, BLOCK_BYTES)
        write_all(self._fileno, self._block[:filled], number * BLOCK_BYTES)

    def _overwrite(self, view: memoryview) -> None:
        """Write at a position before or after the end of the file. A gap after the end reads as zeros."""
        self._flush_blocks()
        write_all(self._fileno, view, self._position)
        end = self._position + len(view)
        self._forget_digests(min(self._position, self.size), end)
        self.size = max(self.size, end)
        self._load_last_block()

    def _forget_digests(self, start: int, end: int) -> None:
        for number in range(start // BLOCK_BYTES, end // BLOCK_BYTES + 1):
            self._digests.pop(number, None)

    def _load_last_block(self) -> None:
        number, filled = divmod(self.size, BLOCK_BYTES)
        os.preadv(self._fileno, [self._block[:filled]], number * BLOCK_BYTES)


def _read_into(file: io.FileIO, memory: memoryview) -> str:
    """Fill `memory` from the start of a file, and return the digest of these bytes. Threads read the blocks."""

    def read_block(start: int) -> bytes:
        block = memory[start : start + BLOCK_BYTES]
        read_all(file.fileno(), block, start)
        return hashlib.sha256(block).digest()

    with ThreadPoolExecutor(_THREADS, "digest") as threads:
        return _combine(threads.map(read_block, range(0, max(len(memory), 1), BLOCK_BYTES)))


def write_all(fileno: int, view: memoryview, offset: int) -> None:
    while view:
        written = os.pwrite(fileno, view, offset)
        view, offset = view[written:], offset + written


def read_all(fileno: int, view: memoryview, offset: int) -> None:
    while view:
        count = os.preadv(fileno, [view], offset)
        if not count:
            raise EOFError(f"the file ends at byte {offset}")
        view, offset = view[count:], offset + count


def _hash_block(fileno: int, start: int) -> bytes:
    return hashlib.sha256(os.pread(fileno, BLOCK_BYTES, start)).digest()


def _combine(digests: Iterable[bytes]) -> str:
    blocks = list(digests)
    if len(blocks) == 1:
        return blocks[0].hex()
    return _TREE + hashlib.sha256(b"".join(blocks)).hexdigest()
