"""Lists directories and stats their entries; on slow storage, many directories at a time.

On a local disk each call takes microseconds, and threads would only slow each other down. Over a network each call
waits for a round trip. There, threads read directories ahead, and stat the parts of a large directory in parallel.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

Items = list[os.DirEntry[str]]

THREADS = 32
BATCH_SIZE = 100
"""Number of entries that one thread stats."""

TRIAL_SECONDS = 0.05  # shorter measurements say nothing about the storage
ENTRY_SECONDS = 50e-6  # limit for listing and stat-ing one entry; a local disk takes 3e-6


class PrefetchWalk:
    """Reads directories in the order in which `prefetch` announced them. It must be closed."""

    def __init__(self) -> None:
        self._prefetched: dict[str, Future[Items]] = {}
        self._list_threads: ThreadPoolExecutor | None = None
        self._stat_threads: ThreadPoolExecutor | None = (
            None  # a separate pool, so that batches never wait for directories
        )
        self._seconds = 0.0
        self._entries = 0

    def prefetch(self, folder: str) -> None:
        """Announce a directory that will be read soon."""
        if self._list_threads is not None:
            self._prefetched[folder] = self._list_threads.submit(list_directory, folder)

    def read(self, folder: str) -> Items:
        """Return the entries of a directory. Raises OSError."""
        prefetched = self._prefetched.pop(folder, None)
        if prefetched is not None:
            found = prefetched.result()
        else:
            started_at = time.monotonic()
            found = list_directory(folder)
            self._measure(started_at, len(found[:BATCH_SIZE]) + 1)
        self._stat_all(
            [found[at : at + BATCH_SIZE] for at in range(BATCH_SIZE, len(found), BATCH_SIZE)]
        )
        return found

    def _stat_all(self, batches: Sequence[Items]) -> None:
        """Stat batches of entries, in threads on slow storage."""
        futures = []
        for batch in batches:
            if self._stat_threads is not None:
                futures.append(self._stat_threads.submit(stat_entries, batch))
            else:
                started_at = time.monotonic()
                stat_entries(batch)
                self._measure(started_at, len(batch))
        for each in futures:
            each.result()

    def _measure(self, started_at: float, entries: int) -> None:
        """Add a measurement. Start the threads once the storage turns out to be slow."""
        self._seconds += time.monotonic() - started_at
        self._entries += entries
        if self._list_threads is None and is_slow(self._seconds, self._entries):
            self._list_threads = ThreadPoolExecutor(THREADS, "walk")
            self._stat_threads = ThreadPoolExecutor(THREADS, "look")

    def close(self) -> None:
        for threads in (self._list_threads, self._stat_threads):
            if threads is not None:
                threads.shutdown(cancel_futures=True)


def list_directory(folder: str) -> Items:
    """Return the entries of a directory, of which the first batch is stat-ed. Raises OSError."""
    with os.scandir(folder) as items:
        found = list(items)
    stat_entries(found[:BATCH_SIZE])
    return found


def stat_entries(items: Items) -> None:
    """Fill the stat caches of entries."""
    for item in items:
        try:  # noqa: SIM105 - it is done for each file of a tree
            item.stat(follow_symlinks=False)
        except OSError:  # raised again when the caller calls stat
            pass


def is_slow(seconds: float, entries: int) -> bool:
    """Return whether storage is slow, from the time that it took to list and stat some entries."""
    return seconds > max(TRIAL_SECONDS, ENTRY_SECONDS * entries)
