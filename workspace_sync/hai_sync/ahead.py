"""Directories with what stat says of each of their entries; where storage is slow, many are read at a time.

A walk asks for one thing after the other. On a disk of this machine each answer takes microseconds, and threads would
only be in one another's way; over a network it waits for a round trip each time.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor

from hai_sync.slow import is_slow

Items = list[os.DirEntry[str]]

THREADS = 32


class Ahead:
    """What was expected first is read first. Close it."""

    def __init__(self) -> None:
        self._coming: dict[str, Future[Items]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._seconds = 0.0
        self._entries = 0

    def expect(self, folder: str) -> None:
        """It will be read soon."""
        if self._threads is not None:
            self._coming[folder] = self._threads.submit(listed, folder)

    def read(self, folder: str) -> Items:
        """What is in it. Raises OSError."""
        coming = self._coming.pop(folder, None)
        if coming is not None:
            return coming.result()
        began = time.monotonic()
        found = listed(folder)
        self._learn(time.monotonic() - began, len(found) + 1)
        return found

    def _learn(self, seconds: float, entries: int) -> None:
        self._seconds += seconds
        self._entries += entries
        if self._threads is None and is_slow(self._seconds, self._entries):
            self._threads = ThreadPoolExecutor(THREADS, "walk")

    def close(self) -> None:
        """Nothing is read any more."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)


def listed(folder: str) -> Items:
    """Entries that remember what stat said. Raises OSError for the directory itself."""
    with os.scandir(folder) as items:
        found = list(items)
    for item in found:
        try:  # noqa: SIM105 - it is done for each file of a tree
            item.stat(follow_symlinks=False)
        except OSError:  # who asks again is told
            pass
    return found
