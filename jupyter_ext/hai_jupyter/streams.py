"""How many logs are followed at the same time: each costs the platform a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hai.client.errors import LimitReached


class Streams:
    """Counts what is open."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.open = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """One more, while the block runs. Raises LimitReached."""
        if self.open >= self._limit:
            raise LimitReached(
                f"{self.open} logs are followed already",
                hint="close a log, or raise HaiJupyter.max_log_streams",
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
