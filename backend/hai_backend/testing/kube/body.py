"""Bodies of objects as parsed JSON, and functions that read and revise them.

A stored body is a value that is never changed in place. `revised` returns a new body, which shares unchanged parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(m|[kMGTPE]i?|Ki|u|n|[eE][+-]?[0-9]+)?$")
_SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{s: Fraction(1000) ** i for i, s in enumerate("kMGTPE", 1)},
    **{f"{s}i": Fraction(1024) ** i for i, s in enumerate("KMGTPE", 1)},
}


Body = dict[str, Any]


def stamp(now: float) -> str:
    """Format a metav1.Time, which has whole seconds."""
    return _stamp(int(now))


@lru_cache(maxsize=256)
def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def fine_stamp(now: float) -> str:
    """Format a metav1.MicroTime, which is also the format of time stamps in logs."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: str) -> float:
    """Parse a time stamp to seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def dig(body: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value at a path, as in `dig(pod, "spec.nodeName")`; the default if a part is missing or null."""
    value: Any = body
    for step in path.split("."):
        if not isinstance(value, dict):
            return default
        value = value.get(step)
    return default if value is None else value


def revised(body: Body, **changes: Any) -> Body:
    """Return the body with some fields replaced. `metadata` is merged; None removes a field."""
    made = {**body, **changes}
    if "metadata" in changes:
        merged = {**body.get("metadata", {}), **changes["metadata"]}
        made["metadata"] = {k: v for k, v in merged.items() if v is not None}
    return {k: v for k, v in made.items() if v is not None}


def condition(body: Mapping[str, Any], kind: str) -> Body | None:
    """Return the status condition of a type; None if there is none."""
    found = (c for c in dig(body, "status.conditions", []) if c.get("type") == kind)
    return next(found, None)


def with_condition(conditions: list[Body], new: Body, now: float) -> list[Body]:
    """Return the conditions with one replaced or appended. Its transition time changes only if its status changes."""
    old = next((c for c in conditions if c["type"] == new["type"]), None)
    same = old is not None and old["status"] == new["status"]
    since = old.get("lastTransitionTime") if same and old is not None else None
    made = {**new, "lastTransitionTime": since or stamp(now)}
    if old is None:
        return [*conditions, made]
    return [made if c is old else c for c in conditions]


def quantity(value: str | int | float) -> Fraction:
    """Parse a resource quantity (`500m`, `2`, `1Gi`) exactly. Raises ValueError if it is invalid."""
    found = _QUANTITY.match(str(value))
    if found is None:
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number, suffix = found[1], found[2] or ""
    if suffix[:1] in "eE" and suffix not in _SUFFIXES:
        return Fraction(f"{number}{suffix}")
    return Fraction(number) * _SUFFIXES[suffix]
