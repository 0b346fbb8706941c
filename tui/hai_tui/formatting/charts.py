"""Series and shares as one line of text. A step without a measurement is blank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"

Series = Sequence[float | None]


def spread(points: Iterable[tuple[int, float | None]], start: int, end: int, step: int) -> Series:
    """A value for every step from `start` to `end`: those of points, which say when they begin, else None."""
    values: list[float | None] = [None] * max(0, (end - start) // step)
    for begin, value in points:
        index = (begin - start) // step
        if 0 <= index < len(values):
            values[index] = value
    return values


def spark(values: Series, top: float) -> str:
    """One character a value, from 0 to `top`."""
    return "".join(" " if value is None else _block(value, top) for value in values)


def mean(values: Series) -> float | None:
    """Of what is known; None: nothing is."""
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def most(values: Series) -> float | None:
    """Of what is known."""
    return max((value for value in values if value is not None), default=None)


def _block(value: float, top: float) -> str:
    share = value / top if top > 0 else 0.0
    return _BLOCKS[min(len(_BLOCKS) - 1, max(0, int(share * len(_BLOCKS))))]


def bar(share: float, width: int) -> str:
    """A bar of `width` cells, of which a share from 0 to 1 is filled."""
    filled = min(width, max(0, round(share * width)))
    return "█" * filled + "░" * (width - filled)


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
