"""Who held which node when, as text: one line a node, one letter a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_NOBODY = "·"


@dataclass(frozen=True, slots=True)
class Bar:
    """A period on a node, in seconds. It is drawn in lower case from `suspend_requested_at` on."""

    node: str
    begin: float
    end: float
    mark: str
    suspend_requested_at: float | None = None


def chart(bars: Sequence[Bar], width: int = 72) -> list[str]:
    """Lines of `width` columns after the node's name, then a scale in seconds."""
    if not bars:
        return []
    begin, end = min(b.begin for b in bars), max(b.end for b in bars)
    step = max(end - begin, 1e-9) / width
    middles = [begin + (i + 0.5) * step for i in range(width)]
    nodes = sorted({b.node for b in bars})
    names = max(len(n) for n in nodes)
    rows = [f"{node:<{names}}  {''.join(_mark(bars, node, t) for t in middles)}" for node in nodes]
    return [*rows, f"{'':<{names}}  {_scale(end - begin, width)}"]


def _mark(bars: Sequence[Bar], node: str, time: float) -> str:
    for bar in bars:
        if bar.node == node and bar.begin <= time < bar.end:
            ending = bar.suspend_requested_at is not None and time >= bar.suspend_requested_at
            return bar.mark.lower() if ending else bar.mark.upper()
    return _NOBODY


def _scale(seconds: float, width: int) -> str:
    every = next((s for s in (1, 2, 5, 10, 30, 60) if seconds / s <= width / 8), 120)
    line = [" "] * (width + 8)
    for second in range(0, int(seconds) + 1, every):
        label = f"{second} s"
        at = int(second / max(seconds, 1e-9) * width)
        line[at : at + len(label)] = label
    return "".join(line).rstrip()
