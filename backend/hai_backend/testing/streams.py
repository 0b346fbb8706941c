"""How many streams servers of this process hold open: a client that has left must leave none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hai_backend.api.server.call_limits import CallLimiter


@contextmanager
def counted_streams() -> Iterator[Callable[[], int]]:
    """Counts those of servers that are made meanwhile."""
    made: list[CallLimiter] = []
    begin = CallLimiter.__init__

    def remembered(self: CallLimiter, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    with patch.object(CallLimiter, "__init__", remembered):
        yield lambda: sum(sum(each._streams.values()) for each in made)
