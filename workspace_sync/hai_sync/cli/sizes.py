"""Sizes in words. Loads nothing, for `quick`."""

from __future__ import annotations


def size_of(bytes_: float) -> str:
    """For people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if bytes_ < 1024 or unit == "GiB":
            return f"{bytes_:.0f} {unit}" if unit == "B" else f"{bytes_:.1f} {unit}"
        bytes_ /= 1024
    raise AssertionError("units end with GiB")
