"""Formats numbers, durations and times for messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_LISTED = 5
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_number(number: float) -> str:
    """Return a number as text: `10000`, `0.125`. Numbers that are not integers get four digits."""
    return f"{number:.0f}" if number == int(number) else f"{number:.4g}"


def format_count(number: float, noun: str) -> str:
    """Return a number with its noun: `1 node`, `2 nodes`, `0.125 nodes`."""
    return f"{format_number(number)} {noun}{'' if number == 1 else 's'}"


def format_list(numbers: Sequence[object]) -> str:
    """Return a list as text: `1, 2, 3`, or `1, 2, 3, 4, 5 and 12 more`."""
    more = f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else ""
    return ", ".join(map(str, numbers[:_LISTED])) + more


def format_size(size: float) -> str:
    """Return a size in bytes as text: `3.6 GiB`."""
    unit, name = _unit_of(size)
    return f"{size / unit:.3g} {name}"


def format_part(part: float, whole: float) -> str:
    """Return a part of a size in bytes as text, in the unit of the whole: `2.1 of 3.6 GiB`."""
    unit, name = _unit_of(whole)
    return f"{part / unit:.3g} of {whole / unit:.3g} {name}"


def _unit_of(size: float) -> tuple[int, str]:
    """Return the largest unit of which a size has at least about one, in bytes, and its name."""
    power = 0
    while size >= 999.5 * 1024**power and power < len(_UNITS) - 1:
        power += 1
    return 1024**power, _UNITS[power]


def format_duration(seconds: float) -> str:
    """Return a duration as text: `45 s`, `2.5 h`. The unit is the largest of which there are at least two."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def format_utc(seconds_since_epoch: float) -> str:
    """Return a time as text: `2026-01-31 12:00:00 UTC`, or the seconds if the calendar has no such date."""
    try:
        return datetime.fromtimestamp(seconds_since_epoch, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"second {seconds_since_epoch:g}"
