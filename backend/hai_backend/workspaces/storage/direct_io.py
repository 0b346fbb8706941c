"""Large files past the page cache: written from the beginning on, and read in parts.

What a push brings is on disk before it is acknowledged. Through the page cache it would be copied, written back later,
and waited for all the same, and it would drive out what tasks read. So blocks go to the disk as they are (O_DIRECT,
which wants aligned memory), one in a thread while the next is filled, and older versions come from it likewise.
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
_ALIGNED = 4096
_FEW_BYTES = 1 << 20  # so little is read through the page cache, which reads ahead
_TRIES = 5
_DIRECT = getattr(os, "O_DIRECT", 0)  # Linux
_disk = ThreadPoolExecutor(4, "disk")


class DirectIO:
    """One file that is written, from a place on, open until `close`. One thread at a time."""

    def __init__(self, file: int, begin: int) -> None:
        self._file = file
        self._blocks = _two_blocks()
        self._filled = 0  # of the first block
        self._begin = begin  # where in the file it goes
        self._under_way: Future[None] | None = None
        self.written = begin  # so far the file has what was added
        _set_direct(file, True)

    def add(self, content: memoryview) -> None:
        """These bytes come next. Raises OSError, also of what was added before."""
        while content:
            size = min(len(content), BLOCK_BYTES - self._filled)
            self._blocks[0][self._filled : self._filled + size] = content[:size]
            self._filled, content = self._filled + size, content[size:]
            if self._filled == BLOCK_BYTES:
                self._send()

    def _send(self) -> None:
        self._wait()
        block = self._blocks[0][:BLOCK_BYTES]
        self._under_way = _disk.submit(_write, self._file, self._begin, block)
        self._begin, self._filled = self._begin + BLOCK_BYTES, 0
        self._blocks.reverse()

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()  # what has failed once fails again
            self._under_way = None
            self.written = self._begin

    def finish(self) -> None:
        """All that was added is in the file. The end of a file is not aligned: it goes the usual way."""
        self._wait()
        _set_direct(self._file, False)
        write_all_at(self._file, self._begin, self._blocks[0][: self._filled])
        self.written = self._begin + self._filled

    def close(self) -> None:
        """Nothing more comes."""
        with suppress(OSError):
            self._wait()
        os.close(self._file)


class Reader:
    """Reads parts of files, the next one while one is looked at."""

    def __init__(self) -> None:
        self._blocks: list[memoryview] = []

    def read(self, parts: Iterable[tuple[int, int, int]]) -> Iterator[memoryview]:
        """Parts of open files (file, begin, at most BLOCK_BYTES); each stays as it is until the next is asked for.

        A file that has become shorter gives fewer bytes. Raises OSError.
        """
        ahead = deque[Future[memoryview]]()
        try:
            for part in parts:
                self._blocks = self._blocks[::-1] or _two_blocks()
                ahead.append(_disk.submit(_read, *part, self._blocks[0]))
                if len(ahead) > 1:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            wait(ahead)  # files may be closed from now on


def _two_blocks() -> list[memoryview]:
    """Aligned as the disk wants it, with room for a part that is not."""
    return [memoryview(mmap.mmap(-1, BLOCK_BYTES + _ALIGNED)) for _ in range(2)]


def _read(file: int, begin: int, size: int, block: memoryview) -> memoryview:
    first = begin % _ALIGNED
    end = -(-(first + size) // _ALIGNED) * _ALIGNED
    direct = size > _FEW_BYTES
    for left in range(_TRIES)[::-1]:  # another read may set what this one has just unset
        _set_direct(file, direct)
        try:
            read = os.preadv(file, [block[:end]], begin - first)
            break
        except OSError as error:
            if error.errno != errno.EINVAL or not left:
                raise
            direct = False
    return block[first : min(read, first + size)]


def _write(file: int, place: int, block: memoryview) -> None:
    try:
        write_all_at(file, place, block)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _set_direct(file, False)  # it wants another alignment, or none of this
        write_all_at(file, place, block)


def _set_direct(file: int, direct: bool) -> None:
    """As far as the file system can."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    with suppress(OSError):
        fcntl.fcntl(file, fcntl.F_SETFL, flags | _DIRECT if direct else flags & ~_DIRECT)
