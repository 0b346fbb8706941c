"""Numbers in sentences."""

from __future__ import annotations


def counted(number: float, word: str) -> str:
    """`1 node`, `2 nodes`, `0.125 nodes`."""
    shown = f"{number:.0f}" if number == int(number) else f"{number:.4g}"
    return f"{shown} {word}{'' if number == 1 else 's'}"
