"""Warns of a push that is larger than the user may have meant: a forgotten dataset is best ignored in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from hai_sync.core.diff import Change
from hai_sync.core.entry import Kind

MAX_BYTES, MAX_FILES = 1 << 30, 10_000
_TOP = 10


@dataclass(frozen=True, slots=True)
class SizeWarning:
    """The size of an unusually large push, and its largest parts."""

    files: int
    size: int
    largest: Sequence[tuple[str, int]]  # files, with bytes; none unless it is many bytes
    fullest: Sequence[
        tuple[str, int]
    ]  # directories, with how many files are below; none unless there are many


def size_warning_of(changes: Sequence[Change]) -> SizeWarning | None:
    """None: the push is not unusually large."""
    sizes = {c.path: c.new.size for c in changes if c.new is not None and c.new.kind is Kind.FILE}
    total = sum(sizes.values())
    if total <= MAX_BYTES and len(sizes) <= MAX_FILES:
        return None
    largest = nlargest(_TOP, sizes.items(), key=lambda item: item[1]) if total > MAX_BYTES else []
    below = Counter(path.partition("/")[0] + "/" for path in sizes if "/" in path)
    fullest = below.most_common(_TOP) if len(sizes) > MAX_FILES else []
    return SizeWarning(len(sizes), total, largest, fullest)
