"""Artifacts: those that a submission may name, and naming them for a task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hai.client.client import Client
from hai.v1.artifact_pb2 import ArtifactDirection
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.proto_json import to_json_value

_DIRECTIONS = ("input", "output")
_NAME_FIELDS = ("name", "version", "user_group")

ArtifactsByDirection = Mapping[str, Mapping[str, str]]
"""The artifact of each direction: name, version, user_group."""


class ArtifactsHandler(Handler):
    """Lists artifacts."""

    @answers
    async def get(self) -> Any:
        found = await self.client.artifacts.list()
        return [to_json_value(one) for one in found]


def read_artifacts(data: Mapping[str, Any]) -> ArtifactsByDirection:
    """Validates `artifacts` of a request; reports all errors at once."""
    by_direction = data.get("artifacts") or {}
    if not isinstance(by_direction, dict):
        raise invalid(("artifacts", "must be an artifact for input, output or both"))
    wrong = [
        (f"artifacts.{side}", "must be an artifact of input or output, with texts")
        for side, one in by_direction.items()
        if side not in _DIRECTIONS or not _is_name(one)
    ]
    if wrong:
        raise invalid(*wrong)
    return {
        side: {key: one.get(key, "") for key in _NAME_FIELDS} for side, one in by_direction.items()
    }


async def map_artifacts(client: Client, task_id: int, artifacts: ArtifactsByDirection) -> None:
    """Maps artifacts to a task; idempotent."""
    sides = (
        (ArtifactDirection.Value(f"ARTIFACT_DIRECTION_{s.upper()}"), one)
        for s, one in artifacts.items()
    )
    await asyncio.gather(*(client.artifacts.map(task_id, side, **one) for side, one in sides))


def _is_name(one: object) -> bool:
    return (
        isinstance(one, dict)
        and bool(one.get("name"))
        and all(isinstance(one.get(key, ""), str) for key in _NAME_FIELDS)
    )
