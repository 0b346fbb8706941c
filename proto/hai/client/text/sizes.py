"""Sizes in bytes, as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: float) -> str:
    """`1.5 GiB`; three digits at most."""
    value, units = float(size), list(_UNITS)
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.3g} {units[0]}"
