"""How states look: a glyph, a word and a colour each, so that none depends on colour alone.

Colours are names of the theme's variables; `hai_tui.theme` gives each theme its values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatusStyle:
    """A sign of one cell, and which of the theme's tones it is drawn in."""

    glyph: str
    tone: str  # good, busy, waits, bad, quiet, held, plain


_LOOKS = {
    "WAITING_INIT": StatusStyle("○", "waits"),
    "WAITING": StatusStyle("○", "waits"),
    "SUSPENDED": StatusStyle("◐", "waits"),
    "CREATED": StatusStyle("◔", "busy"),
    "BUILDING": StatusStyle("◔", "busy"),
    "RUNNING": StatusStyle("●", "good"),
    "SUSPENDING": StatusStyle("◑", "busy"),
    "STOPPING": StatusStyle("◑", "busy"),
    "TERMINATING": StatusStyle("◑", "busy"),
    "ENDED": StatusStyle("■", "quiet"),
    "SUCCEEDED": StatusStyle("✓", "done"),
    "FAILED": StatusStyle("✗", "bad"),
    "STOPPED": StatusStyle("■", "quiet"),
    "CANCELED": StatusStyle("⊘", "quiet"),
    "HELD": StatusStyle("‖", "held"),
    "UNSCHEDULABLE": StatusStyle("!", "bad"),
    "SUCCEEDED_TERMINATING": StatusStyle("✓", "busy"),
    "FAILED_TERMINATING": StatusStyle("✗", "busy"),
    "STOPPED_TERMINATING": StatusStyle("■", "busy"),
    "READY": StatusStyle("●", "good"),
    "NOT_READY": StatusStyle("✗", "bad"),
    "CORDONED": StatusStyle("‖", "held"),
}

SILENT = StatusStyle("◌", "bad")
"""A task, rank or node that runs, as far as is known: its agent is silent."""

UNKNOWN = StatusStyle("?", "plain")
"""A state that a newer server has."""


def look(state: str) -> StatusStyle:
    """The sign of a task's status, a run's, a rank's or a node's state."""
    return _LOOKS.get(state, UNKNOWN)


def bar(part: float, width: int) -> str:
    """A bar of that many cells, filled by a part of 1."""
    full = min(width, max(0, round(part * width)))
    return "█" * full + "░" * (width - full)
