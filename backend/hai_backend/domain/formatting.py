"""Numbers and moments in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_LISTED = 5


def shown(number: float) -> str:
    """`10000`, `0.125`: whole numbers whole, others with four digits."""
    return f"{number:.0f}" if number == int(number) else f"{number:.4g}"


def counted(number: float, word: str) -> str:
    """`1 node`, `2 nodes`, `0.125 nodes`."""
    return f"{shown(number)} {word}{'' if number == 1 else 's'}"


def listed(numbers: Sequence[object]) -> str:
    """`1, 2, 3`; of many the first: `1, 2, 3, 4, 5 and 12 more`."""
    more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
    return ", ".join(map(str, numbers[:_LISTED])) + more


def span(seconds: float) -> str:
    """`45 s`, `2.5 h`: in the largest unit of which there are two."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def utc(moment: float) -> str:
    """`2026-01-31 12:00:00 UTC`, from seconds since the epoch; of moments that no calendar has, the seconds."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {moment:g}"
