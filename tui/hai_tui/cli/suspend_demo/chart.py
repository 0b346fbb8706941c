"""Draws which task used which node over time: one line for each node, one letter for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_IDLE = "·"


@dataclass(frozen=True, slots=True)
class Bar:
    """A period on a node, in seconds. It is drawn in lower case from `suspend_requested_at` on."""

    node: str
    begin: float
    end: float
    mark: str
    suspend_requested_at: float | None = None


def draw_chart(bars: Sequence[Bar], width: int = 72) -> list[str]:
    """Return a line of `width` columns for each node, then a scale in seconds."""
    if not bars:
        return []
    begin, end = min(b.begin for b in bars), max(b.end for b in bars)
    step = max(end - begin, 1e-9) / width
    middles = [begin + (i + 0.5) * step for i in range(width)]
    nodes = sorted({b.node for b in bars})
    name_width = max(len(n) for n in nodes)
    rows = [
        f"{node:<{name_width}}  {''.join(_mark_at(bars, node, t) for t in middles)}"
        for node in nodes
    ]
    return [*rows, f"{'':<{name_width}}  {_scale(end - begin, width)}"]


def _mark_at(bars: Sequence[Bar], node: str, time: float) -> str:
    """Return the letter of the task that has the node at that time."""
    for bar in bars:
        if bar.node == node and bar.begin <= time < bar.end:
            is_leaving = bar.suspend_requested_at is not None and time >= bar.suspend_requested_at
            return bar.mark.lower() if is_leaving else bar.mark.upper()
    return _IDLE


def _scale(seconds: float, width: int) -> str:
    """Return a line with labels in seconds."""
    step_seconds = next((s for s in (1, 2, 5, 10, 30, 60) if seconds / s <= width / 8), 120)
    line = [" "] * (width + 8)
    for second in range(0, int(seconds) + 1, step_seconds):
        label = f"{second} s"
        at = int(second / max(seconds, 1e-9) * width)
        line[at : at + len(label)] = label
    return "".join(line).rstrip()
