"""Keeps a log of what every scheduling pass was shown and what it decided, for `hai simulate LOG --verify`.

A line a pass, written by the thread of the pass. At its limit a log becomes LOG.1, an older one goes. A log begins with
everything that the cache knows, and the cache is then built anew from just that: so a replay needs no older log.
Whatever goes wrong with the log never reaches a pass: it is told once, and tried again later with a new beginning.
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
_AGAIN = 60.0  # seconds until a log that could not be written is tried again


class Recorder(Protocol):
    """Told of every pass."""

    def before(self, cache: SchedulerCache) -> SchedulerCache:
        """The cache that shall make the next pass: this one, or its equal built anew."""
        ...

    def after(self, shown: PassInput, plan: Plan) -> None:
        """It was shown this and decided that."""
        ...


class Unrecorded:
    """Keeps nothing."""

    def before(self, cache: SchedulerCache) -> SchedulerCache:
        """The same cache."""
        return cache

    def after(self, shown: PassInput, plan: Plan) -> None:
        """Nothing."""


class DecisionLog:
    """The log of one server. Not to be used by two threads at once."""

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
        self._cache: SchedulerCache | None = (
            None  # whose passes the log tells of; None: of nobody's
        )
        self._rules: Rules | None = None  # the last ones in the log
        self._size = self._full = 0
        self._not_before = -float("inf")
        self._failing = False

    def before(self, cache: SchedulerCache) -> SchedulerCache:
        """The cache itself, or its equal with which the log begins anew."""
        if cache is not self._cache or self._size >= self._full:
            self._cache = None
            if self._monotonic() >= self._not_before:
                self._safely(lambda: self._begin(cache))
        return self._cache or cache

    def after(self, shown: PassInput, plan: Plan) -> None:
        """A line more, if the cache is the one of the log."""
        if self._cache is not None:
            self._safely(lambda: self._pass(shown, plan))

    def _begin(self, cache: SchedulerCache) -> None:
        begin = Begin(self._policy, cache.snapshot(), self._release)
        line = begin_line(begin)
        self._size = _whole_lines(self._path)
        if self._size >= self._limit:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._size = 0
        # a beginning larger than the limit must not begin the log anew with each pass
        self._full = max(self._limit, self._size + 2 * len(line))
        self._write(line)
        self._cache, self._rules = begin.cache(), None
        if self._failing:
            log.info("scheduling passes are recorded again", path=str(self._path))
            self._failing = False

    def _pass(self, shown: PassInput, plan: Plan) -> None:
        known = replace(shown, rules=None) if shown.rules == self._rules else shown
        self._write(pass_line(Pass(known, plan)))
        self._rules = shown.rules

    def _write(self, line: str) -> None:
        """All of the line or nothing of it."""
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
        except Exception as error:  # scheduling goes on, whatever it is
            self._cache, self._not_before = None, self._monotonic() + _AGAIN
            if not self._failing:
                log.warning(
                    "scheduling passes cannot be recorded", path=str(self._path), why=repr(error)
                )
            self._failing = True


def _append(descriptor: int, data: bytes, before: int) -> int:
    """The bytes written: all; on a full disk the file becomes as it was."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        os.ftruncate(descriptor, before)
        raise
    return len(data)


def _whole_lines(path: Path) -> int:
    """The size of a log, after half a line was cut off that a crash has left."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        if not file.seek(0, os.SEEK_END):
            return 0
        with mmap(file.fileno(), 0, access=ACCESS_READ) as text:
            end = text.rfind(b"\n") + 1
        return file.truncate(end)
