"""Directories with what stat says of each of their entries; where storage is slow, many are read at a time, and of a
large one many parts.

A walk asks for one thing after the other. On a disk of this machine each answer takes microseconds, and threads would
only be in one another's way; over a network it waits for a round trip each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

Items = list[os.DirEntry[str]]

THREADS = 32
PART = 100
"""Entries that one thread looks at."""

TRIAL_SECONDS = 0.05  # too little to say anything
ENTRY_SECONDS = 50e-6  # listed and looked at; a disk of this machine takes 3e-6


class PrefetchWalk:
    """What was expected first is read first. Close it."""

    def __init__(self) -> None:
        self._coming: dict[str, Future[Items]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._helpers: ThreadPoolExecutor | None = None  # parts need not wait for what is expected
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
            found = coming.result()
        else:
            began = time.monotonic()
            found = listed(folder)
            self._learn(began, len(found[:PART]) + 1)
        self._look_at([found[at : at + PART] for at in range(PART, len(found), PART)])
        return found

    def _look_at(self, parts: Sequence[Items]) -> None:
        helped = []
        for part in parts:
            if self._helpers is not None:
                helped.append(self._helpers.submit(look, part))
            else:
                began = time.monotonic()
                look(part)
                self._learn(began, len(part))
        for each in helped:
            each.result()

    def _learn(self, began: float, entries: int) -> None:
        self._seconds += time.monotonic() - began
        self._entries += entries
        if self._threads is None and is_slow(self._seconds, self._entries):
            self._threads = ThreadPoolExecutor(THREADS, "walk")
            self._helpers = ThreadPoolExecutor(THREADS, "look")

    def close(self) -> None:
        """Nothing is read any more."""
        for threads in (self._threads, self._helpers):
            if threads is not None:
                threads.shutdown(cancel_futures=True)


def listed(folder: str) -> Items:
    """What is in it; the first part has been looked at. Raises OSError for the directory itself."""
    with os.scandir(folder) as items:
        found = list(items)
    look(found[:PART])
    return found


def look(items: Items) -> None:
    """Entries remember what stat says."""
    for item in items:
        try:  # noqa: SIM105 - it is done for each file of a tree
            item.stat(follow_symlinks=False)
        except OSError:  # who asks again is told
            pass


def is_slow(seconds: float, entries: int) -> bool:
    """Whether so many entries should not have taken so long."""
    return seconds > max(TRIAL_SECONDS, ENTRY_SECONDS * entries)
