"""The settings of a node group as they are stored: a JSON text of those that differ from the server's policy.

Other settings follow the server's policy, also when its defaults change in a new version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Group
from hai_backend.scheduler.policy.policy import Policy, parse

_NO_SETTINGS: Mapping[str, Any] = {}


def settings(group: Group) -> Mapping[str, Any]:
    """The settings of the group. An invalid text sets nothing, so that it never stops a pass."""
    if not group.policy:
        return _NO_SETTINGS
    try:
        found = json.loads(group.policy)
        parse(found)
    except (Invalid, ValueError, RecursionError):
        return _NO_SETTINGS
    return dict(found)


def readable(group: Group) -> bool:
    """False when the stored text is invalid."""
    return not group.policy or bool(settings(group))


def in_force(group: Group, base: Policy) -> Policy:
    """The policy of passes over the group."""
    return parse(settings(group), base=base) if group.policy else base


def written(found: Mapping[str, Any]) -> str:
    """The text to store; equal for equal settings."""
    return json.dumps(found, sort_keys=True) if found else ""
