"""Prefetches small files, in many threads where storage is slow.

Large files, and files that cannot be read, are left to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Protocol

from hai_backend.domain.errors import HaiError
from hai_backend.workspaces.contents import closing_descriptor
from hai_backend.workspaces.storage.directories import Directories
from hai_backend.workspaces.storage.workers import (
    FILE_SECONDS,
    StorageSpeed,
    TreeWorker,
    WorkerPool,
    split_batches,
)

_FILES_PER_BATCH, _BYTES_PER_BATCH = 4, 512 << 10  # limits of one batch of a thread


class FileSource(Protocol):
    """A source of files. Threads use it concurrently, each with its own directories."""

    @property
    def storage_speed(self) -> StorageSpeed:
        """The measured speed of the storage."""

    def open_tree(self) -> Directories:
        """Open the tree. Raise HaiError or OSError."""

    def open(self, folders: Directories, path: str, max_bytes: int | None = None) -> int | None:
        """Open a file for reading. Return None if the file has more than `max_bytes` bytes. Raise HaiError."""


def prefetch_small_files(source: FileSource, paths: Sequence[str]) -> Generator[bytes | None]:
    """Yield the content of each file in order; None for files that were not read."""
    with closing(
        WorkerPool(partial(_SmallFileReader, source), FILE_SECONDS, source.storage_speed)
    ) as pool:
        for contents in pool.map_ordered(
            _SmallFileReader.read, split_batches(paths, _FILES_PER_BATCH)
        ):
            yield from contents


class _SmallFileReader(TreeWorker):
    """Reads files through its own open directories. Not thread-safe."""

    def __init__(self, source: FileSource) -> None:
        super().__init__(source.open_tree())
        self._source = source

    def read(self, paths: list[str]) -> list[bytes | None]:
        self.done += len(paths)
        remaining_bytes, contents = _BYTES_PER_BATCH, list[bytes | None]()
        for path in paths:
            content = self._content(path, remaining_bytes)
            remaining_bytes -= len(content or b"")
            contents.append(content)
        return contents

    def _content(self, path: str, max_bytes: int) -> bytes | None:
        try:
            file = self._source.open(self.folders, path, max_bytes)
            if file is None:
                return None
            with closing_descriptor(file):
                size = os.fstat(file).st_size
                content = os.pread(file, min(size, max_bytes), 0)
        except (HaiError, OSError):
            return None
        return content if len(content) == size else None
