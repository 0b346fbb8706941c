"""Support for tests of Kubernetes clients: a fake cluster (`kube`), and the clock that drives it."""

from __future__ import annotations


class ManualClock:
    """A clock whose time changes only with `advance`."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
