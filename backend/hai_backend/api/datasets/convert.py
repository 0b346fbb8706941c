"""Converts datasets to messages and back."""

from __future__ import annotations

import re

from hai.v1 import dataset_pb2 as pb
from hai_backend.api.request import limits
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.users.convert import NAME_RULE
from hai_backend.domain.catalog.dataset import Dataset, Visibility

DEFAULT_VERSION = "default"
_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[^/\x00-\x1f\x7f]+)+")
_MAX_BYTES = 1 << 60
_VISIBILITIES = {v: pb.DatasetVisibility.Value(f"DATASET_VISIBILITY_{v.name}") for v in Visibility}
_BY_NUMBER: dict[int, Visibility] = {number: v for v, number in _VISIBILITIES.items()}


def dataset_to_proto(dataset: Dataset) -> pb.Dataset:
    return pb.Dataset(
        name=dataset.name,
        version=dataset.version,
        path=dataset.path,
        owner=dataset.owner,
        user_group=dataset.user_group,
        visibility=_VISIBILITIES[dataset.visibility],
        size_bytes=dataset.size_bytes,
        description=dataset.description,
        create_time=to_timestamp(dataset.created_at),
    )


def dataset_from_proto(message: pb.Dataset, owner: str, now: float) -> Dataset:
    """Return a validated dataset. Raises Invalid with every violation."""
    violations = FieldViolations()
    version = message.version or DEFAULT_VERSION
    violations.check_pattern("dataset.name", message.name, NAME, NAME_RULE)
    violations.check_pattern("dataset.version", version, NAME, NAME_RULE)
    violations.check_pattern(
        "dataset.path", message.path, _PATH, "an absolute path without . and .."
    )
    violations.check_text("dataset.path", message.path, limits.URL_CHARS)
    violations.check_range("dataset.size_bytes", message.size_bytes, 0, _MAX_BYTES)
    violations.check_line("dataset.description", message.description, limits.URL_CHARS)
    visibility = _read_visibility(message, violations)
    violations.raise_if_any()
    return Dataset(
        message.name,
        version,
        message.path,
        owner,
        message.user_group,
        visibility,
        message.size_bytes,
        message.description,
        now,
    )


def _read_visibility(message: pb.Dataset, violations: FieldViolations) -> Visibility:
    if message.visibility not in _BY_NUMBER:
        violations.add("dataset.visibility", "must be PUBLIC, GROUP or PRIVATE")
    visibility = _BY_NUMBER.get(message.visibility, Visibility.PRIVATE)
    if message.user_group:
        violations.check_pattern("dataset.user_group", message.user_group, NAME, NAME_RULE)
    elif visibility is Visibility.GROUP:
        violations.add("dataset.user_group", "is required for the visibility GROUP")
    return visibility
