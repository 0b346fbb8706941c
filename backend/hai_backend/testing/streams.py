"""How many streams servers of this process hold open: a client that has left must leave none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hai_backend.services.admission import Admission


@contextmanager
def counted_streams() -> Iterator[Callable[[], int]]:
    """Counts those of servers that are made meanwhile."""
    made: list[Admission] = []
    begin = Admission.__init__

    def remembered(self: Admission, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    with patch.object(Admission, "__init__", remembered):
        yield lambda: sum(sum(each._streams.values()) for each in made)
