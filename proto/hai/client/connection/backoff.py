"""Computes delays between attempts: exponential, with jitter."""

from __future__ import annotations

import random
from collections.abc import Iterator


def delays(first: float = 0.1, largest: float = 5.0) -> Iterator[float]:
    """Yield the seconds to wait before each attempt.

    The delays double up to `largest`. Jitter of up to half a delay keeps many clients from retrying at the same
    moment.
    """
    step = first
    while True:
        yield step * random.uniform(0.5, 1.0)
        step = min(step * 2, largest)
