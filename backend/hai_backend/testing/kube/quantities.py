"""Resource quantities: `500m`, `2`, `1Gi`, as exact numbers."""

from __future__ import annotations

import re
from fractions import Fraction

_PATTERN = re.compile(r"([+-]?[0-9.]+)(m|[kMGTPE]i?|Ki|u|n|[eE][+-]?[0-9]+)?$")
_FACTORS: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{s: Fraction(1000) ** i for i, s in enumerate("kMGTPE", 1)},
    **{f"{s}i": Fraction(1024) ** i for i, s in enumerate("KMGTPE", 1)},
}


def quantity(value: str | int | float) -> Fraction:
    """The number that it means. Raises ValueError for what is no quantity."""
    found = _PATTERN.match(str(value))
    if found is None:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, suffix = found[1], found[2] or ""
    if suffix[:1] in "eE" and suffix not in _FACTORS:
        return Fraction(f"{number}{suffix}")
    return Fraction(number) * _FACTORS[suffix]
