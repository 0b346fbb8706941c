"""Removing much at once is more often a mistake than meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hai_sync.core.diff import Change
from hai_sync.core.entry import Entry

FEW = 10


def too_many_removals(changes: Sequence[Change], had: int) -> int:
    """How many paths go, if that is more than half of them and more than ten; else 0. What moves does not go."""
    went = Counter(_look(c.old) for c in changes if c.new is None and c.old is not None)
    came = Counter(_look(c.new) for c in changes if c.old is None and c.new is not None)
    gone = (went - came).total()
    return gone if gone > FEW and gone * 2 > had else 0


def _look(entry: Entry) -> tuple[object, ...]:
    """What a move keeps; nobody has looked into what is new."""
    return entry.kind, entry.size, entry.mtime_ns, entry.target
