"""Words for the numbers of the contract's enums."""

from __future__ import annotations

import re
from functools import cache
from typing import Any


@cache
def word(enum: Any, number: int) -> str:
    """RUNNING for TASK_STATE_RUNNING; of a number that only a newer server knows, that number."""
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.DESCRIPTOR.name).upper()
    known = enum.DESCRIPTOR.values_by_number.get(number)
    return known.name.removeprefix(f"{prefix}_") if known else f"UNKNOWN_{number}"
