"""Charts of Braille dots: two values a cell, four steps a line. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)


def area(values: Sequence[float], width: int, height: int, top: float) -> list[str]:
    """Lines of a filled chart, the newest value at the right edge; a value above nothing has a dot at least."""
    shown = list(values)[-2 * width :]
    shown = [0.0] * (2 * width - len(shown)) + shown
    steps = [_steps(value, height * 4, top) for value in shown]
    lines = []
    for line in range(height - 1, -1, -1):
        cells = (_cell(steps[2 * i] - 4 * line, steps[2 * i + 1] - 4 * line) for i in range(width))
        lines.append("".join(cells))
    return lines


def _steps(value: float, most: int, top: float) -> int:
    if value <= 0 or top <= 0:
        return 0
    return max(1, min(most, round(value / top * most)))


def _cell(left: int, right: int) -> str:
    dots = sum(_LEFT[: max(0, min(4, left))]) + sum(_RIGHT[: max(0, min(4, right))])
    return chr(0x2800 + dots)
