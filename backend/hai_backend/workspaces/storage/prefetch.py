"""Small files are read before they are asked for, by many threads where storage is slow.

Whatever is in the way of that, or is large, is left to whoever reads them in order.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol

from hai_backend.domain.errors import HaiError
from hai_backend.workspaces.contents import opened
from hai_backend.workspaces.storage.directories import Directories
from hai_backend.workspaces.storage.workers import FILE_SECONDS, Storage, Walker, Workers, parts

_FILES, _BYTES = 4, 512 << 10  # that one thread reads before it takes others


class Source(Protocol):
    """Where files come from. Threads ask at the same time, each with directories of its own."""

    @property
    def storage(self) -> Storage:
        """What is known of it."""

    def folders(self) -> Directories:
        """Opened anew. Raises HaiError or OSError."""

    def open(self, folders: Directories, path: str, most: int | None = None) -> int | None:
        """For reading; None: it has more than `most` bytes. Raises HaiError."""


def small_files(source: Source, paths: Sequence[str]) -> Generator[bytes | None]:
    """The content of each; None: nobody has looked."""
    with closing(Workers(partial(_Reader, source), FILE_SECONDS, source.storage)) as hands:
        for contents in hands.each(_Reader.read, parts(paths, _FILES)):
            yield from contents


class _Reader(Walker):
    """One thread at a time."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.folders())
        self._source = source

    def read(self, paths: list[str]) -> list[bytes | None]:
        self.done += len(paths)
        left, contents = _BYTES, list[bytes | None]()
        for path in paths:
            content = self._content(path, left)
            left -= len(content or b"")
            contents.append(content)
        return contents

    def _content(self, path: str, most: int) -> bytes | None:
        try:
            file = self._source.open(self.folders, path, most)
            if file is None:
                return None
            with opened(file):
                size = os.fstat(file).st_size
                content = os.pread(file, min(size, most), 0)
        except (HaiError, OSError):
            return None
        return content if len(content) == size else None
