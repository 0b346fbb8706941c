"""Artifacts: those that a submission may name, and naming them for a task."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hai.client.client import Client
from hai.v1.artifact_pb2 import ArtifactDirection
from hai_jupyter.errors import invalid
from hai_jupyter.handlers.base import Handler, answers
from hai_jupyter.proto_json import plain

_SIDES = ("input", "output")
_NAME = ("name", "version", "user_group")

Wanted = Mapping[str, Mapping[str, str]]
"""For a side of a task what it has there: name, version, user_group."""


class ArtifactsHandler(Handler):
    """All that the user sees."""

    @answers
    async def get(self) -> Any:
        """By name and version."""
        found = await self.client.artifacts.list()
        return [plain(one) for one in found]


def read_wanted(data: Mapping[str, Any]) -> Wanted:
    """What the page sent as `artifacts`, with every mistake named at once."""
    given = data.get("artifacts") or {}
    if not isinstance(given, dict):
        raise invalid(("artifacts", "must be an artifact for input, output or both"))
    wrong = [
        (f"artifacts.{side}", "must be an artifact of input or output, with texts")
        for side, one in given.items()
        if side not in _SIDES or not _is_name(one)
    ]
    if wrong:
        raise invalid(*wrong)
    return {side: {key: one.get(key, "") for key in _NAME} for side, one in given.items()}


async def give(client: Client, task_id: int, wanted: Wanted) -> None:
    """Name them for the task; twice is the same as once."""
    sides = (
        (ArtifactDirection.Value(f"ARTIFACT_DIRECTION_{s.upper()}"), one)
        for s, one in wanted.items()
    )
    await asyncio.gather(*(client.artifacts.map(task_id, side, **one) for side, one in sides))


def _is_name(one: object) -> bool:
    return (
        isinstance(one, dict)
        and bool(one.get("name"))
        and all(isinstance(one.get(key, ""), str) for key in _NAME)
    )
