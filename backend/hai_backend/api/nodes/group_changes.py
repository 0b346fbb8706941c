"""Applies an UpdateGroup request to the settings of a group, and validates the result as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hai.client.taskfile.validation.violations import suggestion_text
from hai.v1.node_service_pb2 import UpdateGroupRequest
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.scheduling.convert_policy import NAMES, policy_from_proto
from hai_backend.domain.errors import Invalid
from hai_backend.domain.node import Group
from hai_backend.scheduler.policy.group_policy import format_settings, settings
from hai_backend.scheduler.policy.policy import Policy, parse, to_mapping

_PATHS = ("packed", "policy", *(f"policy.{name}" for name in NAMES))
_MAX_REPORTED = 20  # wrong paths in one error


def update_group(before: Group, request: UpdateGroupRequest, base: Policy) -> Group:
    """Return the group with the new settings. `base` is the policy of the server. Raises Invalid."""
    violations = FieldViolations()
    violations.check_pattern("name", request.name, NAME, "a group's name")
    paths = _paths(request)
    for path in [path for path in dict.fromkeys(paths) if path not in _PATHS][:_MAX_REPORTED]:
        violations.add(
            "update_mask", f"there is no setting {path[:60]!r}{suggestion_text(path, _PATHS)}"
        )
    policy = _normalize(_merge(before, request, paths), base, violations)
    violations.raise_if_any()
    packed = request.packed if "packed" in paths else before.packed
    return Group(request.name, packed, format_settings(policy))


def _paths(request: UpdateGroupRequest) -> list[str]:
    if request.update_mask.paths:
        return list(request.update_mask.paths)
    return ["packed", *(f"policy.{field.name}" for field, _ in request.policy.ListFields())]


def _merge(before: Group, request: UpdateGroupRequest, paths: list[str]) -> Mapping[str, Any]:
    """Return the settings of the group after the request. A path that is named without a value unsets its setting."""
    requested, existing = policy_from_proto(request.policy), dict(settings(before))
    named = {path.removeprefix("policy.") for path in paths}
    if "policy" in named:
        return requested
    retained = {name: value for name, value in existing.items() if name not in named}
    return retained | {name: value for name, value in requested.items() if name in named}


def _normalize(
    policy: Mapping[str, Any], base: Policy, violations: FieldViolations
) -> Mapping[str, Any]:
    """Return the settings in the form in which they are stored. Add a violation for each invalid one."""
    try:
        values = to_mapping(parse(policy, base=base))
    except Invalid as error:
        for violation in error.violations:
            violations.add(f"policy.{violation.field}", violation.message, "BAD_POLICY")
        return {}
    return {name: values[name] for name in policy}
