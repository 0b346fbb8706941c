"""Handlers of artifacts: lists them, and records those of a submission as input and output of its task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hai.client.client import Client
from hai.v1.artifact_pb2 import ArtifactDirection
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers, to_json_value

_DIRECTIONS = ("input", "output")
_NAME_FIELDS = ("name", "version", "user_group")

ArtifactsByDirection = Mapping[str, Mapping[str, str]]
"""The artifact of each direction: name, version, user_group."""


class ArtifactsHandler(Handler):
    """Lists artifacts."""

    @answers
    async def get(self) -> Any:
        return [to_json_value(artifact) for artifact in await self.client.artifacts.list()]


def read_artifacts(data: Mapping[str, Any]) -> ArtifactsByDirection:
    """Validate `artifacts` of a request; report all faults at once."""
    by_direction = data.get("artifacts") or {}
    if not isinstance(by_direction, dict):
        raise invalid(("artifacts", "must be an object with the keys `input`, `output` or both"))
    faults = [
        (
            f"artifacts.{direction}",
            "must have the key `input` or `output`, a `name`, and only strings",
        )
        for direction, reference in by_direction.items()
        if direction not in _DIRECTIONS or not _is_reference(reference)
    ]
    if faults:
        raise invalid(*faults)
    return {
        direction: {key: reference.get(key, "") for key in _NAME_FIELDS}
        for direction, reference in by_direction.items()
    }


async def map_artifacts(client: Client, task_id: int, artifacts: ArtifactsByDirection) -> None:
    """Record artifacts as input or output of a task; idempotent."""
    pairs = (
        (ArtifactDirection.Value(f"ARTIFACT_DIRECTION_{direction.upper()}"), reference)
        for direction, reference in artifacts.items()
    )
    await asyncio.gather(
        *(client.artifacts.map(task_id, value, **reference) for value, reference in pairs)
    )


def _is_reference(value: object) -> bool:
    return (
        isinstance(value, dict)
        and bool(value.get("name"))
        and all(isinstance(value.get(key, ""), str) for key in _NAME_FIELDS)
    )
