"""How states look: a glyph, a word and a colour each, so that none depends on colour alone.

Colours are names of the theme's variables; `hai_tui.theme` gives each theme its values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """A sign of one cell, and which of the theme's tones it is drawn in."""

    glyph: str
    tone: str  # good, busy, waits, bad, quiet, held, plain


_LOOKS = {
    "WAITING_INIT": Look("○", "waits"),
    "WAITING": Look("○", "waits"),
    "SUSPENDED": Look("◐", "waits"),
    "CREATED": Look("◔", "busy"),
    "BUILDING": Look("◔", "busy"),
    "RUNNING": Look("●", "good"),
    "SUSPENDING": Look("◑", "busy"),
    "STOPPING": Look("◑", "busy"),
    "TERMINATING": Look("◑", "busy"),
    "ENDED": Look("■", "quiet"),
    "SUCCEEDED": Look("✓", "done"),
    "FAILED": Look("✗", "bad"),
    "STOPPED": Look("■", "quiet"),
    "CANCELED": Look("⊘", "quiet"),
    "HELD": Look("‖", "held"),
    "UNSCHEDULABLE": Look("!", "bad"),
    "SUCCEEDED_TERMINATING": Look("✓", "busy"),
    "FAILED_TERMINATING": Look("✗", "busy"),
    "STOPPED_TERMINATING": Look("■", "busy"),
    "READY": Look("●", "good"),
    "NOT_READY": Look("✗", "bad"),
    "CORDONED": Look("‖", "held"),
}

SILENT = Look("◌", "bad")
"""A task, rank or node that runs, as far as is known: its agent is silent."""

UNKNOWN = Look("?", "plain")
"""A state that a newer server has."""


def look(state: str) -> Look:
    """The sign of a task's status, a run's, a rank's or a node's state."""
    return _LOOKS.get(state, UNKNOWN)


def bar(part: float, width: int) -> str:
    """A bar of that many cells, filled by a part of 1."""
    full = min(width, max(0, round(part * width)))
    return "█" * full + "░" * (width - full)
