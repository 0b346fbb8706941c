"""`--after TASK[:OUTCOME]`: tasks that have to end before those that are submitted may start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_spec_pb2 import TaskSpec

_OUTCOMES = ("succeeded", "failed", "ended")


class First(NamedTuple):
    """A task as people call it, and how it has to end; empty: as the server says."""

    task: str
    outcome: str


class After(click.ParamType[First]):
    """12, fit, fit:ended. A name may have a colon itself."""

    name = "TASK[:OUTCOME]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> First:
        """Whether there is such a task, the server knows."""
        task, _, outcome = str(value).rpartition(":")
        return First(task, outcome) if outcome in _OUTCOMES else First(str(value), "")


async def put_after(client: Client, specs: Sequence[TaskSpec], wanted: Sequence[First]) -> None:
    """Let each of them wait for all of these. Raises what names nothing."""
    numbers = [await client.tasks.resolve(first.task) for first in wanted]
    for spec in specs:
        for number, first in zip(numbers, wanted, strict=True):
            spec.options.after.add(task=number, outcome=first.outcome)
