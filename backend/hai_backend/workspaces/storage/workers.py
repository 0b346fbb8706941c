"""Runs work on storage sequentially, or in many threads where storage is slow.

On a local disk a call takes microseconds, and threads would only cost time. Over a network each call takes a round
trip, and threads can wait for many concurrently. The first calls are measured to distinguish both.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Generic, Protocol, TypeVar

from hai_backend.workspaces.storage.directories import Directories

THREADS = 16
FILES_PER_BATCH, NAMES_PER_BATCH = 10, 100  # for one thread
TRIAL_SECONDS = 0.05  # shorter measurements are ignored
SLOW_SECONDS = 60.0  # how long slow storage counts as slow
# The time to create a small file on slow storage, and the bytes that take as long; a local disk takes 1.5e-4 s.
FILE_SECONDS, FILE_BYTES = 5e-4, 16 << 10
NAME_SECONDS = 50e-6  # the time to read a name on slow storage; a local disk takes 3e-6 s


class Worker(Protocol):
    """The state of one thread. `done` counts finished units of work, which take about the same time."""

    done: int

    def close(self) -> None:
        """Release the resources of the worker."""


class TreeWorker(Worker):
    """A worker with its own open directories in a tree."""

    def __init__(self, folders: Directories) -> None:
        self.folders = folders
        self.done = 0

    def close(self) -> None:
        self.folders.close()


class StorageSpeed:
    """The measured speed of a workspace's storage. Thread-safe."""

    def __init__(self) -> None:
        self._slow_until = 0.0

    @property
    def slow(self) -> bool:
        """Tells whether storage was slow recently."""
        return time.monotonic() < self._slow_until

    def mark_slow(self) -> None:
        """Record that storage is slow, so that the next pool starts with threads."""
        self._slow_until = time.monotonic() + SLOW_SECONDS


AnyWorker = TypeVar("AnyWorker", bound=Worker)
Work = TypeVar("Work")
Result = TypeVar("Result")


def is_slow(elapsed_seconds: float, expected_seconds: float) -> bool:
    """Return whether work took longer than expected."""
    return elapsed_seconds > max(TRIAL_SECONDS, expected_seconds)


def split_batches(items: Iterable[Work], number: int) -> Iterator[list[Work]]:
    """Split items into batches of `number`."""
    iterator = iter(items)
    while batch := list(islice(iterator, number)):
        yield batch


class WorkerPool(Generic[AnyWorker]):
    """Runs functions, each with a worker. Storage is slow if a unit of work takes longer than `seconds`."""

    def __init__(
        self,
        make_worker: Callable[[], AnyWorker],
        seconds: float,
        speed: StorageSpeed | None = None,
    ) -> None:
        self._make_worker = make_worker
        self._free = deque([make_worker()])
        self.workers = list(self._free)
        self._seconds = seconds
        self._elapsed_seconds = 0.0
        self._speed = speed or StorageSpeed()
        self._threads = _threads() if self._speed.slow else None

    @property
    def max_pending(self) -> int:
        """The number of results that may be pending."""
        return 1 if self._threads is None else 2 * THREADS

    def submit(self, function: Callable[[AnyWorker, Work], Result], work: Work) -> Future[Result]:
        """Run a function, in this thread or in another one."""
        if self._threads is not None:
            return self._threads.submit(self._run, function, work)
        done = Future[Result]()
        try:
            done.set_result(self._run_here(function, work))
        except Exception as error:
            done.set_exception(error)
        return done

    def map_ordered(
        self, function: Callable[[AnyWorker, Work], Result], works: Iterable[Work]
    ) -> Iterator[Result]:
        """Yield the result for each item in order, with a limited number pending."""
        started = deque[Future[Result]]()
        for work in works:
            if self._threads is None:
                yield self._run_here(function, work)
                continue
            started.append(self.submit(function, work))
            if len(started) >= self.max_pending:
                yield started.popleft().result()
        while started:
            yield started.popleft().result()

    def _run_here(self, function: Callable[[AnyWorker, Work], Result], work: Work) -> Result:
        started_at = time.monotonic()
        result = self._run(function, work)
        self._elapsed_seconds += time.monotonic() - started_at
        if is_slow(self._elapsed_seconds, self._seconds * self.workers[0].done):
            self._threads = _threads()
            self._speed.mark_slow()
        return result

    def _run(self, function: Callable[[AnyWorker, Work], Result], work: Work) -> Result:
        try:
            worker = self._free.pop()
        except IndexError:
            worker = self._make_worker()
            self.workers.append(worker)
        try:
            return function(worker, work)
        finally:
            self._free.append(worker)

    def close(self) -> None:
        """Wait for running work, cancel pending work, and close the workers."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.close()


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "storage")
