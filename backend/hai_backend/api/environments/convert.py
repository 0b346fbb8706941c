"""Converts environments to messages, and validates those of callers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hai.v1 import environment_pb2 as pb
from hai.v1 import environment_service_pb2 as spb
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.users.convert import NAME_RULE
from hai_backend.domain import environment as env
from hai_backend.domain.catalog.dataset import Visibility
from hai_backend.domain.environment import Environment, EnvironmentState

LOCK_CHARS = 3 * 1024 * 1024  # fits into one message
CONFIG_CHARS = 64 * 1024
_BYTES = 1 << 60
_VISIBILITIES = {
    v: pb.EnvironmentVisibility.Value(f"ENVIRONMENT_VISIBILITY_{v.name}") for v in Visibility
}
_BY_NUMBER: dict[int, Visibility] = {number: v for v, number in _VISIBILITIES.items()}
_STATES = {s: pb.EnvironmentState.Value(f"ENVIRONMENT_STATE_{s.name}") for s in EnvironmentState}


def environment_to_proto(
    environment: Environment, root: Path, used_by: Iterable[int] = ()
) -> pb.Environment:
    """Convert an environment, with the tasks that use it."""
    return pb.Environment(
        name=environment.name,
        owner=environment.owner,
        path=str(root / environment.owner / environment.name),
        parent=environment.parent,
        python_version=environment.python_version,
        lock_hash=environment.lock_hash,
        visibility=_VISIBILITIES[environment.visibility],
        user_group=environment.user_group,
        state=_STATES[environment.state],
        message=environment.message,
        packages=environment.packages,
        size_bytes=environment.size_bytes,
        create_time=to_timestamp(environment.created_at or None),
        update_time=to_timestamp(environment.updated_at or None),
        used_by=used_by,
        description=environment.description,
        deprecated=environment.deprecated,
        layer=environment.layer,
    )


def environment_from_proto(message: pb.Environment, owner: str, now: float) -> Environment:
    """Validate what an owner reports about an environment. Raises Invalid with every violation."""
    violations = FieldViolations()
    violations.check_pattern("environment.name", message.name, env.NAME, NAME_RULE)
    if message.parent and env.parse_reference(message.parent) is None:
        violations.add("environment.parent", "must be name[owner]")
    if message.lock_hash:
        violations.check_pattern(
            "environment.lock_hash", message.lock_hash, env.LOCK_HASH, "64 hex digits"
        )
    violations.check_line("environment.python_version", message.python_version, 32)
    violations.check_line("environment.description", message.description, limits.URL_CHARS)
    violations.check_line("environment.deprecated", message.deprecated, limits.URL_CHARS)
    violations.check_range("environment.packages", message.packages, 0, 1_000_000)
    violations.check_range("environment.size_bytes", message.size_bytes, 0, _BYTES)
    visibility = visibility_from_proto(
        message.visibility, message.user_group, "environment", violations
    )
    violations.raise_if_any()
    return Environment(
        owner=owner,
        name=message.name,
        visibility=visibility,
        user_group=message.user_group,
        parent=message.parent,
        python_version=message.python_version,
        lock_hash=message.lock_hash,
        packages=message.packages,
        size_bytes=message.size_bytes,
        description=message.description,
        deprecated=message.deprecated,
        created_at=now,
        updated_at=now,
    )


def description_to_proto(
    environment: Environment, lock: str, config: str, requested: Iterable[str], parent_lock: str
) -> spb.EnvironmentDescription:
    """Convert the description from which another machine can build the same environment."""
    return spb.EnvironmentDescription(
        name=environment.name,
        parent=environment.parent,
        python_version=environment.python_version,
        lock=lock,
        config=config,
        visibility=_VISIBILITIES[environment.visibility],
        user_group=environment.user_group,
        wanted=requested,
        parent_lock_hash=parent_lock,
    )


def visibility_from_proto(
    number: int, user_group: str, field: str, violations: FieldViolations
) -> Visibility:
    """Return a validated visibility, which is private if it is unspecified."""
    if number and number not in _BY_NUMBER:
        violations.add(f"{field}.visibility", "must be PRIVATE, GROUP or PUBLIC")
    visibility = _BY_NUMBER.get(number, Visibility.PRIVATE)
    if user_group:
        violations.check_pattern(f"{field}.user_group", user_group, NAME, NAME_RULE)
    elif visibility is Visibility.GROUP:
        violations.add(f"{field}.user_group", "is required for the visibility GROUP")
    return visibility
