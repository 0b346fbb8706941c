"""Delays between attempts: exponential, with jitter."""

from __future__ import annotations

import random
from collections.abc import Iterator


def delays(first: float = 0.1, largest: float = 5.0) -> Iterator[float]:
    """Seconds to wait before each attempt. They double; jitter of up to half keeps clients from retrying together."""
    step = first
    while True:
        yield step * random.uniform(0.5, 1.0)
        step = min(step * 2, largest)
