"""Records the input and the decisions of every scheduling pass, for `hai simulate LOG --verify`.

The thread of the pass writes one line per pass. A log that reaches its limit is renamed to LOG.1, which replaces an
older file. Each log begins with the complete contents of the cache. The cache is then rebuilt from these contents, so
that a replay of the log needs no earlier log. An error of the log does not affect the pass. It is reported once, and
recording begins again a minute later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Protocol

import structlog

from hai_backend.domain.scheduling.plan import Plan
from hai_backend.scheduler import Policy, SchedulerCache
from hai_backend.scheduler.policy.rules import Rules
from hai_backend.scheduler.recorded_input import Begin, Pass, PassInput, begin_line, pass_line

log = structlog.get_logger(__name__)

LIMIT_BYTES = 256 * 1024 * 1024
_AGAIN = 60.0  # seconds from a failed write until the next attempt


class Recorder(Protocol):
    """Records passes. The loop calls both methods in every pass."""

    def before(self, cache: SchedulerCache) -> SchedulerCache:
        """Return the cache for the next pass: this cache, or an equal cache that was rebuilt."""
        ...

    def after(self, pass_input: PassInput, plan: Plan) -> None:
        """Record the input of a pass and its plan."""
        ...


class Unrecorded:
    """Records nothing."""

    def before(self, cache: SchedulerCache) -> SchedulerCache:
        """Return the same cache."""
        return cache

    def after(self, pass_input: PassInput, plan: Plan) -> None:
        """Do nothing."""


class DecisionLog:
    """The log of one server. It must not be used by two threads at the same time."""

    def __init__(
        self,
        path: Path,
        policy: Policy,
        release: str = "",
        *,
        limit: int = LIMIT_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._policy = policy
        self._release = release
        self._limit = limit
        self._monotonic = monotonic
        self._cache: SchedulerCache | None = None  # the cache whose passes are recorded, if any
        self._rules: Rules | None = None  # the last rules in the log
        self._size = self._full = 0
        self._not_before = -float("inf")
        self._failing = False

    def before(self, cache: SchedulerCache) -> SchedulerCache:
        """Return this cache, or an equal cache that was rebuilt because a log begins."""
        if cache is not self._cache or self._size >= self._full:
            self._cache = None
            if self._monotonic() >= self._not_before:
                self._safely(lambda: self._begin(cache))
        return self._cache or cache

    def after(self, pass_input: PassInput, plan: Plan) -> None:
        """Write a line, if the passes of the current cache are recorded."""
        if self._cache is not None:
            self._safely(lambda: self._pass(pass_input, plan))

    def _begin(self, cache: SchedulerCache) -> None:
        """Begin a log with the contents of the cache, after renaming a full log. Use the rebuilt cache from now on."""
        begin = Begin(self._policy, cache.snapshot(), self._release)
        line = begin_line(begin)
        self._size = _whole_lines(self._path)
        if self._size >= self._limit:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._size = 0
        # If the first line alone exceeds the limit, the next pass must not begin another log.
        self._full = max(self._limit, self._size + 2 * len(line))
        self._write(line)
        self._cache, self._rules = begin.cache(), None
        if self._failing:
            log.info("scheduling passes are recorded again", path=str(self._path))
            self._failing = False

    def _pass(self, pass_input: PassInput, plan: Plan) -> None:
        recorded = (
            replace(pass_input, rules=None) if pass_input.rules == self._rules else pass_input
        )
        self._write(pass_line(Pass(recorded, plan)))
        self._rules = pass_input.rules

    def _write(self, line: str) -> None:
        """Append a line completely, or not at all if the disk is full. Raises OSError."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.fstat(descriptor).st_size != self._size:
                raise OSError(f"{self._path} was changed by somebody else")
            self._size += _append(descriptor, line.encode(), self._size)
        finally:
            os.close(descriptor)

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # no error of the log may stop scheduling
            self._cache, self._not_before = None, self._monotonic() + _AGAIN
            if not self._failing:
                log.warning(
                    "scheduling passes cannot be recorded", path=str(self._path), why=repr(error)
                )
            self._failing = True


def _append(descriptor: int, data: bytes, before: int) -> int:
    """Append all bytes and return their number. On an error, truncate the file to `before` bytes."""
    remaining = memoryview(data)
    try:
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
    except OSError:
        os.ftruncate(descriptor, before)
        raise
    return len(data)


def _whole_lines(path: Path) -> int:
    """Remove an incomplete last line, which a crash may leave. Return the size of the log."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        if not file.seek(0, os.SEEK_END):
            return 0
        with mmap(file.fileno(), 0, access=ACCESS_READ) as text:
            end = text.rfind(b"\n") + 1
        return file.truncate(end)
