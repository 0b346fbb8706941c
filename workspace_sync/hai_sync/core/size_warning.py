"""Is a push larger than somebody may have meant? A forgotten dataset is best left out before it is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from hai_sync.core.diff import Change
from hai_sync.core.entry import Kind

BYTES, FILES = 1 << 30, 10_000
_TOP = 10


@dataclass(frozen=True, slots=True)
class SizeWarning:
    """A push that is worth a second look: how much it is, and what most of it is."""

    files: int
    size: int
    largest: Sequence[tuple[str, int]]  # files, with bytes; none unless it is many bytes
    fullest: Sequence[
        tuple[str, int]
    ]  # directories, with how many files are below; none unless there are many


def heavy(changes: Sequence[Change]) -> SizeWarning | None:
    """None: nobody need look twice."""
    sizes = {c.path: c.new.size for c in changes if c.new is not None and c.new.kind is Kind.FILE}
    total = sum(sizes.values())
    if total <= BYTES and len(sizes) <= FILES:
        return None
    largest = nlargest(_TOP, sizes.items(), key=lambda item: item[1]) if total > BYTES else []
    below = Counter(path.partition("/")[0] + "/" for path in sizes if "/" in path)
    fullest = below.most_common(_TOP) if len(sizes) > FILES else []
    return SizeWarning(len(sizes), total, largest, fullest)
