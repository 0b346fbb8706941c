"""How much one user may ask at once: a token bucket for calls, a count for open streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hai_backend.api.request.limits import CallLimits
from hai_backend.domain.errors import Exhausted

_REMEMBERED = 10_000  # users; full buckets are forgotten beyond that


class CallLimiter:
    """`monotonic` says seconds; tests pass their own."""

    def __init__(self, limits: CallLimits, monotonic: Callable[[], float]) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}
        self._streams: Counter[str] = Counter()

    def call(self, user: str) -> None:
        """Count one call. Raises Exhausted, saying when to try again."""
        now, rate = self._monotonic(), self._limits.calls_per_second
        left, since = self._buckets.get(user, (self._limits.calls_at_once, now))
        left = min(self._limits.calls_at_once, left + (now - since) * rate)
        if left < 1.0:
            wait = (1.0 - left) / rate
            raise Exhausted(
                f"{user} calls more than {rate:g} times a second; try again in {wait:.3f} s",
                reason="RATE_LIMITED",
                retry_after=wait,
            )
        if len(self._buckets) > _REMEMBERED:
            self._buckets.clear()
        self._buckets[user] = (left - 1.0, now)

    @contextmanager
    def stream(self, user: str) -> Iterator[None]:
        """Count a stream while it is open. Raises Exhausted."""
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
