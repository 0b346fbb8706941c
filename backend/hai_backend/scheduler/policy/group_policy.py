"""The stored settings of a node group: a JSON text of the settings that differ from the server's policy.

All other settings follow the server's policy, even if its defaults change in a new version.
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
    """Return the settings of the group. An invalid text counts as no settings, so that passes continue."""
    if not group.policy:
        return _NO_SETTINGS
    try:
        found = json.loads(group.policy)
        parse(found)
    except (Invalid, ValueError, RecursionError):
        return _NO_SETTINGS
    return dict(found)


def has_valid_policy(group: Group) -> bool:
    """Return whether the stored text is valid."""
    return not group.policy or bool(settings(group))


def resolve_policy(group: Group, base: Policy) -> Policy:
    """Return the policy for passes over the group."""
    return parse(settings(group), base=base) if group.policy else base


def format_settings(found: Mapping[str, Any]) -> str:
    """Return the text to store; it is equal for equal settings."""
    return json.dumps(found, sort_keys=True) if found else ""
