"""Formats numbers, durations and times for messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_LISTED = 5


def format_number(number: float) -> str:
    """`10000`, `0.125`: integers completely, other numbers with four digits."""
    return f"{number:.0f}" if number == int(number) else f"{number:.4g}"


def format_count(number: float, noun: str) -> str:
    """`1 node`, `2 nodes`, `0.125 nodes`."""
    return f"{format_number(number)} {noun}{'' if number == 1 else 's'}"


def format_list(numbers: Sequence[object]) -> str:
    """`1, 2, 3`, or `1, 2, 3, 4, 5 and 12 more`."""
    more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
    return ", ".join(map(str, numbers[:_LISTED])) + more


def format_duration(seconds: float) -> str:
    """`45 s`, `2.5 h`: in the largest unit of which there are at least two."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def format_utc(seconds_since_epoch: float) -> str:
    """`2026-01-31 12:00:00 UTC`, from seconds since the epoch; of moments that no calendar has, the seconds."""
    try:
        return datetime.fromtimestamp(seconds_since_epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {seconds_since_epoch:g}"
