"""Numbers in sentences."""

from __future__ import annotations


def shown(number: float) -> str:
    """`10000`, `0.125`: whole numbers whole, others with four digits."""
    return f"{number:.0f}" if number == int(number) else f"{number:.4g}"


def counted(number: float, word: str) -> str:
    """`1 node`, `2 nodes`, `0.125 nodes`."""
    return f"{shown(number)} {word}{'' if number == 1 else 's'}"
