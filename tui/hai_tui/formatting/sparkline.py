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
