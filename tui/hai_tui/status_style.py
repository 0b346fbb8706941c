"""Bars, and the state styles of `hai.client`; `hai_tui.theme` gives each tone its colour."""

from __future__ import annotations

from hai.client.text.state_style import SILENT as SILENT
from hai.client.text.state_style import StateStyle as StatusStyle
from hai.client.text.state_style import state_style as look

__all__ = ["SILENT", "StatusStyle", "bar", "look"]


def bar(part: float, width: int) -> str:
    """A bar of that many cells, filled by a part of 1."""
    full = min(width, max(0, round(part * width)))
    return "█" * full + "░" * (width - full)
