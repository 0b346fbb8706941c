"""Series and shares as text: sparklines, bars, and charts of Braille dots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_LEFT_DOTS = (0x40, 0x04, 0x02, 0x01)  # bits of a Braille character, from the bottom
_RIGHT_DOTS = (0x80, 0x20, 0x10, 0x08)

Series = Sequence[float | None]
"""Values of equal steps; None where nothing was measured."""


def spread(points: Iterable[tuple[int, float | None]], start: int, end: int, step: int) -> Series:
    """Return a value for each step from `start` to `end`. A point belongs to the step that contains its time."""
    values: list[float | None] = [None] * max(0, (end - start) // step)
    for begin, value in points:
        index = (begin - start) // step
        if 0 <= index < len(values):
            values[index] = value
    return values


def spark(values: Series, top: float) -> str:
    """Return one character for each value, from 0 to `top`; a blank where nothing was measured."""
    return "".join(" " if value is None else _block(value, top) for value in values)


def mean(values: Series) -> float | None:
    """Return the mean of the measured values; None if there are none."""
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def most(values: Series) -> float | None:
    """Return the largest measured value; None if there is none."""
    return max((value for value in values if value is not None), default=None)


def _block(value: float, top: float) -> str:
    share = value / top if top > 0 else 0.0
    return _BLOCKS[min(len(_BLOCKS) - 1, max(0, int(share * len(_BLOCKS))))]


def bar(share: float, width: int) -> str:
    """Return a bar of `width` cells, of which a share from 0 to 1 is filled."""
    filled = min(width, max(0, round(share * width)))
    return "█" * filled + "░" * (width - filled)


def area(values: Sequence[float], width: int, height: int, top: float) -> list[str]:
    """Return the lines of a filled chart, with the newest value at the right edge.

    A cell has two columns of four dots, so it shows two values. A positive value has at least one dot.
    """
    newest = list(values)[-2 * width :]
    newest = [0.0] * (2 * width - len(newest)) + newest
    dots = [_dot_count(value, height * 4, top) for value in newest]
    lines = []
    for line in range(height - 1, -1, -1):
        cells = (
            _braille_cell(dots[2 * i] - 4 * line, dots[2 * i + 1] - 4 * line) for i in range(width)
        )
        lines.append("".join(cells))
    return lines


def _dot_count(value: float, max_dots: int, top: float) -> int:
    if value <= 0 or top <= 0:
        return 0
    return max(1, min(max_dots, round(value / top * max_dots)))


def _braille_cell(left: int, right: int) -> str:
    dots = sum(_LEFT_DOTS[: max(0, min(4, left))]) + sum(_RIGHT_DOTS[: max(0, min(4, right))])
    return chr(0x2800 + dots)
