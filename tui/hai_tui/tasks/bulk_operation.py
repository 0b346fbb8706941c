"""Runs one operation on each of several tasks. A failure does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hai.client.client import Client
from hai.client.errors import HaiError
from hai.v1.task_pb2 import Task
from hai_tui.tasks.commands import Operation

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one task: the task as it is now, or the error."""

    id: int
    task: Task | None = None
    error: HaiError | None = None


async def run_on_each(
    client: Client, operations: Sequence[tuple[int, Operation]], *, at_once: int = _AT_ONCE
) -> list[Outcome]:
    """Do each verb to its task, a few at a time; outcomes in the given order."""
    semaphore = asyncio.Semaphore(at_once)

    async def one(id: int, operation: Operation) -> Outcome:
        async with semaphore:
            try:
                return Outcome(id, task=await operation(client, id))
            except HaiError as error:
                return Outcome(id, error=error)

    return list(await asyncio.gather(*(one(id, operation) for id, operation in operations)))
