"""Reads and writes large files without the page cache.

The contents of a push are on disk before the push is acknowledged. The page cache would only copy these contents, and
would evict the files that tasks read. So blocks go directly to disk (O_DIRECT, which needs aligned memory): a thread
writes one block while the next one is filled. Older versions are read in the same way.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

from hai_backend.workspaces.contents import write_all_at

BLOCK_BYTES = 8 << 20
_ALIGNMENT = 4096
_CACHED_READ_BYTES = 1 << 20  # up to this size, reads go through the page cache, which reads ahead
_MAX_TRIES = 5
_DIRECT = getattr(os, "O_DIRECT", 0)  # only Linux has this flag
_disk = ThreadPoolExecutor(4, "disk")


class DirectWriter:
    """Writes one file sequentially from an offset, until `close`. Not thread-safe."""

    def __init__(self, file: int, offset: int) -> None:
        self._file = file
        self._blocks = _two_blocks()
        self._filled = 0  # bytes in the first block
        self._offset = offset  # offset of the first block
        self._pending_write: Future[None] | None = None
        self.written = offset  # end of the bytes that are in the file
        _set_direct(file, True)

    def add(self, content: memoryview) -> None:
        """Append bytes. An OSError may concern bytes that were added earlier."""
        while content:
            size = min(len(content), BLOCK_BYTES - self._filled)
            self._blocks[0][self._filled : self._filled + size] = content[:size]
            self._filled, content = self._filled + size, content[size:]
            if self._filled == BLOCK_BYTES:
                self._write_block()

    def _write_block(self) -> None:
        self._wait()
        block = self._blocks[0][:BLOCK_BYTES]
        self._pending_write = _disk.submit(_write, self._file, self._offset, block)
        self._offset, self._filled = self._offset + BLOCK_BYTES, 0
        self._blocks.reverse()

    def _wait(self) -> None:
        if self._pending_write is not None:
            self._pending_write.result()  # raises the error of a failed write
            self._pending_write = None
            self.written = self._offset

    def finish(self) -> None:
        """Write the remaining bytes. The end of a file is not aligned, so it goes through the page cache."""
        self._wait()
        _set_direct(self._file, False)
        write_all_at(self._file, self._offset, self._blocks[0][: self._filled])
        self.written = self._offset + self._filled

    def close(self) -> None:
        with suppress(OSError):
            self._wait()
        os.close(self._file)


class DirectReader:
    """Reads parts of files, and prefetches the next part while the caller uses the current one."""

    def __init__(self) -> None:
        self._blocks: list[memoryview] = []

    def read(self, parts: Iterable[tuple[int, int, int]]) -> Iterator[memoryview]:
        """Yield parts of open files. Each part is (file, offset, size), with at most BLOCK_BYTES.

        A yielded part is valid until the next one. A file that has become shorter yields fewer bytes. Raise OSError.
        """
        pending = deque[Future[memoryview]]()
        try:
            for part in parts:
                self._blocks = self._blocks[::-1] or _two_blocks()
                pending.append(_disk.submit(_read, *part, self._blocks[0]))
                if len(pending) > 1:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            wait(pending)  # the caller may close the files afterwards


def _two_blocks() -> list[memoryview]:
    """Allocate aligned memory, with space for a part at an unaligned offset."""
    return [memoryview(mmap.mmap(-1, BLOCK_BYTES + _ALIGNMENT)) for _ in range(2)]


def _read(file: int, offset: int, size: int, block: memoryview) -> memoryview:
    """Read a part of a file into a block, directly if the part is large."""
    # Direct reads begin and end at multiples of the alignment.
    skipped = offset % _ALIGNMENT
    end = -(-(skipped + size) // _ALIGNMENT) * _ALIGNMENT
    direct = size > _CACHED_READ_BYTES
    for remaining_tries in range(_MAX_TRIES)[::-1]:  # a concurrent read may set the flag again
        _set_direct(file, direct)
        try:
            read = os.preadv(file, [block[:end]], offset - skipped)
            break
        except OSError as error:
            if error.errno != errno.EINVAL or not remaining_tries:
                raise
            direct = False
    return block[skipped : min(read, skipped + size)]


def _write(file: int, offset: int, block: memoryview) -> None:
    try:
        write_all_at(file, offset, block)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _set_direct(file, False)  # the disk needs another alignment, or does not support O_DIRECT
        write_all_at(file, offset, block)


def _set_direct(file: int, direct: bool) -> None:
    """Set or clear O_DIRECT, as far as the file system supports it."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    with suppress(OSError):
        fcntl.fcntl(file, fcntl.F_SETFL, flags | _DIRECT if direct else flags & ~_DIRECT)
