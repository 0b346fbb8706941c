"""Converts artifacts to messages and back."""

from __future__ import annotations

from hai.v1 import artifact_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.users.convert import NAME_RULE
from hai_backend.domain.catalog.artifact import Artifact, Direction, TaskArtifact, space_of

DEFAULT_VERSION = "default"
_HIDDEN = "***"
_DIRECTIONS = {d: pb.ArtifactDirection.Value(f"ARTIFACT_DIRECTION_{d.name}") for d in Direction}
_DIRECTIONS_BY_NUMBER: dict[int, Direction] = {number: d for d, number in _DIRECTIONS.items()}


def artifact_to_proto(artifact: Artifact) -> pb.Artifact:
    return pb.Artifact(
        name=artifact.name,
        version=artifact.version,
        user_group=artifact.user_group,
        owner=artifact.owner,
        type=artifact.type,
        location=artifact.location,
        description=artifact.description,
        create_time=to_timestamp(artifact.created_at),
        update_time=to_timestamp(artifact.updated_at),
    )


def artifact_from_proto(message: pb.Artifact, owner: str, now: float) -> Artifact:
    """Return a validated artifact. Raises Invalid with every violation."""
    violations = FieldViolations()
    version = message.version or DEFAULT_VERSION
    violations.check_pattern("artifact.name", message.name, NAME, NAME_RULE)
    violations.check_pattern("artifact.version", version, NAME, NAME_RULE)
    if message.user_group:
        violations.check_pattern("artifact.user_group", message.user_group, NAME, NAME_RULE)
    violations.check_line("artifact.type", message.type, limits.TAG_CHARS)
    violations.check_line("artifact.location", message.location, limits.URL_CHARS)
    violations.check_line("artifact.description", message.description, limits.URL_CHARS)
    violations.raise_if_any()
    return Artifact(
        space_of(message.user_group, owner),
        message.name,
        version,
        owner,
        message.type,
        message.location,
        message.description,
        now,
        now,
    )


def task_artifact_to_proto(mapping: TaskArtifact, artifact: Artifact | None) -> pb.TaskArtifact:
    """Convert an artifact of a task. None stands for an artifact that the caller may not see."""
    return pb.TaskArtifact(
        task_id=mapping.task_id,
        direction=_DIRECTIONS[mapping.direction],
        artifact=pb.Artifact(name=_HIDDEN) if artifact is None else artifact_to_proto(artifact),
    )


def direction_from_proto(number: int) -> Direction:
    """Return a direction, which is required. Raises Invalid."""
    violations = FieldViolations()
    if number not in _DIRECTIONS_BY_NUMBER:
        violations.add("direction", "must be INPUT or OUTPUT")
    violations.raise_if_any()
    return _DIRECTIONS_BY_NUMBER[number]


def directions_from_proto(number: int) -> tuple[Direction, ...]:
    """Return the direction with this number, or both directions for 0. Raises Invalid."""
    return (direction_from_proto(number),) if number else tuple(Direction)
