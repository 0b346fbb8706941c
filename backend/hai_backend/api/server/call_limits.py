"""Limits the calls of each user: a token bucket for calls, a count of open streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hai_backend.api.request.limits import CallLimits
from hai_backend.domain.errors import Exhausted

_MAX_BUCKETS = 10_000  # of users; beyond this number all buckets are dropped and start full


class CallLimiter:
    def __init__(self, limits: CallLimits, monotonic: Callable[[], float]) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}
        self._streams: Counter[str] = Counter()

    def count_call(self, user: str) -> None:
        """Count one call. Raises Exhausted with the time after which to retry."""
        now, rate = self._monotonic(), self._limits.calls_per_second
        tokens, updated_at = self._buckets.get(user, (self._limits.calls_at_once, now))
        tokens = min(self._limits.calls_at_once, tokens + (now - updated_at) * rate)
        if tokens < 1.0:
            wait = (1.0 - tokens) / rate
            raise Exhausted(
                f"{user} makes more than {rate:g} calls a second; try again in {wait:.3f} s",
                reason="RATE_LIMITED",
                retry_after=wait,
            )
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.clear()
        self._buckets[user] = (tokens - 1.0, now)

    @contextmanager
    def count_stream(self, user: str) -> Iterator[None]:
        """Count a stream for as long as the context is open. Raises Exhausted."""
        if self._streams[user] >= self._limits.open_streams:
            raise Exhausted(
                f"{user} has {self._limits.open_streams} open streams, which is the limit; close some",
                reason="TOO_MANY_STREAMS",
            )
        self._streams[user] += 1
        try:
            yield
        finally:
            self._streams[user] -= 1
            if not self._streams[user]:
                del self._streams[user]
