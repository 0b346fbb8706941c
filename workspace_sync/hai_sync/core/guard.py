"""Removing much at once is more often a mistake than meant."""

from __future__ import annotations

from collections.abc import Sequence

from hai_sync.core.diff import Change

FEW = 10


def too_many_removals(changes: Sequence[Change], had: int) -> int:
    """How many paths go, if that is more than half of them and more than ten; else 0."""
    gone = sum(1 for change in changes if change.new is None)
    return gone if gone > FEW and gone * 2 > had else 0
