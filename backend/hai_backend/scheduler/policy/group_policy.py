"""What a node group says about its own scheduling, as it is stored: a JSON text of those settings that differ.

What it leaves out follows the server's policy, also when that changes with a new version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Group
from hai_backend.scheduler.policy.policy import Policy, parse

_SERVERS_OWN: Mapping[str, Any] = {}


def settings(group: Group) -> Mapping[str, Any]:
    """What the group sets itself. A text that cannot be read sets nothing, so that it never stops a pass."""
    if not group.policy:
        return _SERVERS_OWN
    try:
        found = json.loads(group.policy)
        parse(found)
    except (Invalid, ValueError, RecursionError):
        return _SERVERS_OWN
    return dict(found)


def readable(group: Group) -> bool:
    """False when something is stored, and nobody can make sense of it."""
    return not group.policy or bool(settings(group))


def in_force(group: Group, base: Policy) -> Policy:
    """The policy that passes over the group follow."""
    return parse(settings(group), base=base) if group.policy else base


def written(found: Mapping[str, Any]) -> str:
    """The text that is stored; equal for equal settings."""
    return json.dumps(found, sort_keys=True) if found else ""
