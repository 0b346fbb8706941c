"""Values of filter terms: numbers, switches, ages and dates. Each adds a violation naming the term when it is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from hai_backend.api.request.field_checks import Rules

_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def number(term: str, value: str, rules: Rules) -> int | None:
    """A whole number, maybe negative."""
    if re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    rules.add("filter", f"{term!r}: {value[:40]!r} is no whole number")
    return None


def boolean(term: str, operator: str, value: str, rules: Rules) -> bool | None:
    """true or false."""
    if operator in (":", "=") and value.lower() in ("true", "false"):
        return value.lower() == "true"
    rules.add("filter", f"{term!r}: write :true or :false")
    return None


def age(
    term: str, operator: str, value: str, now: float, rules: Rules
) -> Iterator[tuple[str, float]]:
    """`age<2d` is younger than two days: created after then."""
    found = _AGE.fullmatch(value.lower())
    if found is None or operator in (":", "="):
        rules.add("filter", f"{term!r}: write age<2d or age>90m, with one of s, m, h, d, w")
        return
    moment = now - float(found[1]) * _SECONDS[found[2]]
    yield ("created_after" if operator in ("<", "<=") else "created_before"), moment


def day(term: str, operator: str, value: str, rules: Rules) -> Iterator[tuple[str, float]]:
    """`created>2026-01-01`, a date or a time, UTC unless it says otherwise."""
    if _AGE.fullmatch(value.lower()):
        rules.add(
            "filter", f"{term!r}: created takes a date; for an age write age<{value} or age>{value}"
        )
        return
    try:
        moment = datetime.fromisoformat(value)
        stamp = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        rules.add(
            "filter", f"{term!r}: {value[:40]!r} is no date like 2026-01-01 or 2026-01-01T08:00"
        )
        return
    if operator in (":", "="):
        rules.add("filter", f"{term!r}: write created> or created<")
        return
    yield ("created_after" if operator in (">", ">=") else "created_before"), stamp
