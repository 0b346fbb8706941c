"""How the terminal app and JupyterLab show states: by a glyph and a colour beside the name, never by colour alone.

`jupyter_ext/src/model/state_style.ts` has the same table, which a test compares. This module imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateStyle:
    """A glyph of one cell, and its tone. Each theme gives a colour to a tone."""

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
"""The styles by the name of a state: of a task, a run, a rank or a node."""

SILENT = StateStyle("◌", "bad")
"""The style of a task, rank or node whose last state is running, but whose agent is silent."""

UNKNOWN = StateStyle("?", "plain")
"""The style of a state that only a newer server has."""


def state_style(state: str) -> StateStyle:
    return STATE_STYLES.get(state, UNKNOWN)
