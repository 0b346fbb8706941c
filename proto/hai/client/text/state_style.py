"""How the terminal app and JupyterLab show states: by a glyph and a colour beside the name, never by colour alone.

`jupyter_ext/src/model/state_style.ts` has the same table; a test compares them. Loads nothing: lists use it first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateStyle:
    """A glyph of one cell, and its tone: a name to which each theme gives a colour."""

    glyph: str
    tone: str  # good, done, busy, waits, held, bad, quiet, plain


STATE_STYLES = {
    "WAITING_INIT": StateStyle("○", "waits"),
    "WAITING": StateStyle("○", "waits"),
    "SUSPENDED": StateStyle("◐", "waits"),
    "HELD": StateStyle("‖", "held"),
    "CREATED": StateStyle("◔", "busy"),
    "BUILDING": StateStyle("◔", "busy"),
    "RUNNING": StateStyle("●", "good"),
    "SUSPENDING": StateStyle("◑", "busy"),
    "STOPPING": StateStyle("◑", "busy"),
    "TERMINATING": StateStyle("◑", "busy"),
    "ENDED": StateStyle("■", "quiet"),
    "SUCCEEDED": StateStyle("✓", "done"),
    "FAILED": StateStyle("✗", "bad"),
    "STOPPED": StateStyle("■", "quiet"),
    "CANCELED": StateStyle("⊘", "quiet"),
    "UNSCHEDULABLE": StateStyle("!", "bad"),
    "SUCCEEDED_TERMINATING": StateStyle("✓", "busy"),
    "FAILED_TERMINATING": StateStyle("✗", "busy"),
    "STOPPED_TERMINATING": StateStyle("■", "busy"),
    "READY": StateStyle("●", "good"),
    "NOT_READY": StateStyle("✗", "bad"),
    "CORDONED": StateStyle("‖", "held"),
}
"""By the status of a task, or the state of a run, a rank or a node."""

SILENT = StateStyle("◌", "bad")
"""A task, rank or node whose last state is running, but whose agent is silent."""

UNKNOWN = StateStyle("?", "plain")
"""A state of a newer server."""


def state_style(state: str) -> StateStyle:
    """The style of a state by its name."""
    return STATE_STYLES.get(state, UNKNOWN)
