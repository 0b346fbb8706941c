"""Formats sizes, and names of the contract's enums and bit masks."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: float) -> str:
    """Return a size in bytes as text with at most three digits, such as `1.5 GiB`."""
    value, units = float(size), list(_UNITS)
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.3g} {units[0]}"


STOP_CODES = {
    1: "STOP", 16: "INTERRUPT", 32: "UNSCHEDULABLE", 128: "FAILED", 256: "INIT_FAILED",
    512: "TIMEOUT", 1024: "MANUAL_STOP", 2048: "HOOK_RESTART", 4096: "MANUAL_SUCCEEDED",
    8192: "MANUAL_FAILED", 16384: "NODE_FAILURE",
}  # fmt: skip
"""HAI's stop codes: a bit mask of the reasons why a run ended."""


@cache
def enum_name(enum: Any, number: int) -> str:
    """Return the short name of an enum value: RUNNING for TASK_STATE_RUNNING, UNKNOWN_7 for a number of a newer
    server.
    """
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.DESCRIPTOR.name).upper()
    value = enum.DESCRIPTOR.values_by_number.get(number)
    return value.name.removeprefix(f"{prefix}_") if value else f"UNKNOWN_{number}"


def stop_code_names(code: int) -> list[str]:
    """Return the names of the bits of a stop code. Unknown bits become one number."""
    names = [name for bit, name in STOP_CODES.items() if code & bit]
    unknown_bits = code & ~sum(STOP_CODES)
    return [*names, *([str(unknown_bits)] if unknown_bits else [])]
