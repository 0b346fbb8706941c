"""From a request to the settings of a group as they will be: what the mask names, checked together with what stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hai.client.taskfile.validation.violations import suggestion_text
from hai.v1.node_service_pb2 import UpdateGroupRequest
from hai_backend.api.request.field_checks import NAME, Rules
from hai_backend.api.scheduling.convert_policy import NAMES, policy_from_proto
from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Group
from hai_backend.scheduler.policy.group_policy import format_settings, settings
from hai_backend.scheduler.policy.policy import Policy, parse, to_mapping

_PATHS = ("packed", "policy", *(f"policy.{name}" for name in NAMES))
_SHOWN = 20  # wrong paths told


def changed(before: Group, request: UpdateGroupRequest, base: Policy) -> Group:
    """The group with the new settings. Raises Invalid with every violation."""
    rules = Rules()
    rules.matching("name", request.name, NAME, "a group's name")
    paths = _paths(request)
    for path in [path for path in dict.fromkeys(paths) if path not in _PATHS][:_SHOWN]:
        rules.add(
            "update_mask", f"there is no setting {path[:60]!r}{suggestion_text(path, _PATHS)}"
        )
    policy = _checked(_merged(before, request, paths), base, rules)
    rules.check()
    packed = request.packed if "packed" in paths else before.packed
    return Group(request.name, packed, format_settings(policy))


def _paths(request: UpdateGroupRequest) -> list[str]:
    if request.update_mask.paths:
        return list(request.update_mask.paths)
    return ["packed", *(f"policy.{field.name}" for field, _ in request.policy.ListFields())]


def _merged(before: Group, request: UpdateGroupRequest, paths: list[str]) -> Mapping[str, Any]:
    """What the group sets itself from now on; what is named and not given is unset."""
    given, own = policy_from_proto(request.policy), dict(settings(before))
    named = {path.removeprefix("policy.") for path in paths}
    if "policy" in named:
        return given
    kept = {name: value for name, value in own.items() if name not in named}
    return kept | {name: value for name, value in given.items() if name in named}


def _checked(found: Mapping[str, Any], base: Policy, rules: Rules) -> Mapping[str, Any]:
    """Those settings, each in the one form in which it is stored."""
    try:
        values = to_mapping(parse(found, base=base))
    except Invalid as error:
        for violation in error.violations:
            rules.add(f"policy.{violation.field}", violation.message, "BAD_POLICY")
        return {}
    return {name: values[name] for name in found}
