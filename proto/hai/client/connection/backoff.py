"""How long to wait before trying again. Pure but for the dice."""

from __future__ import annotations

import random
from collections.abc import Iterator


def delays(first: float = 0.1, largest: float = 5.0) -> Iterator[float]:
    """Seconds to wait, doubling, each drawn between half and whole so that clients do not march in step."""
    step = first
    while True:
        yield step * random.uniform(0.5, 1.0)
        step = min(step * 2, largest)
