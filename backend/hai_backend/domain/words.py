"""Numbers and moments in sentences."""

from __future__ import annotations

from datetime import UTC, datetime


def shown(number: float) -> str:
    """`10000`, `0.125`: whole numbers whole, others with four digits."""
    return f"{number:.0f}" if number == int(number) else f"{number:.4g}"


def counted(number: float, word: str) -> str:
    """`1 node`, `2 nodes`, `0.125 nodes`."""
    return f"{shown(number)} {word}{'' if number == 1 else 's'}"


def utc(moment: float) -> str:
    """`2026-01-31 12:00:00 UTC`, from seconds since the epoch; of moments that no calendar has, the seconds."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {moment:g}"
