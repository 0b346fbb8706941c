"""Bodies of objects as parsed JSON, and the few questions that everybody asks of them.

A stored body is a value: nobody changes it in place. `revised` makes a new one and shares what is unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


Body = dict[str, Any]


def stamp(now: float) -> str:
    """A metav1.Time: whole seconds."""
    return _stamp(int(now))


@lru_cache(maxsize=256)
def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def fine_stamp(now: float) -> str:
    """A metav1.MicroTime, also used for the lines of logs."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_of(text: str) -> float:
    """The time that a stamp means."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def dig(body: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """`dig(pod, "spec.nodeName")`; the default where a step is missing or null."""
    value: Any = body
    for step in path.split("."):
        if not isinstance(value, dict):
            return default
        value = value.get(step)
    return default if value is None else value


def revised(body: Body, **changes: Any) -> Body:
    """The body with some of its parts replaced: `metadata` is merged, None takes a part away."""
    made = {**body, **changes}
    if "metadata" in changes:
        merged = {**body.get("metadata", {}), **changes["metadata"]}
        made["metadata"] = {k: v for k, v in merged.items() if v is not None}
    return {k: v for k, v in made.items() if v is not None}


def condition(body: Mapping[str, Any], kind: str) -> Body | None:
    """The condition of that type in the body's status."""
    found = (c for c in dig(body, "status.conditions", []) if c.get("type") == kind)
    return next(found, None)


def with_condition(conditions: list[Body], new: Body, now: float) -> list[Body]:
    """The conditions with `new` in its place; the time of its transition changes only with its status."""
    old = next((c for c in conditions if c["type"] == new["type"]), None)
    same = old is not None and old["status"] == new["status"]
    since = old.get("lastTransitionTime") if same and old is not None else None
    made = {**new, "lastTransitionTime": since or stamp(now)}
    if old is None:
        return [*conditions, made]
    return [made if c is old else c for c in conditions]
