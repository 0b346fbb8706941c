"""For tests of what talks to Kubernetes: a fake API server and cluster in `kube`, and the clock that drives it."""

from __future__ import annotations


class ManualClock:
    """Time that passes only when it is told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
