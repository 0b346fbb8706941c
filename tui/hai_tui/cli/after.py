"""`--after TASK[:OUTCOME]`: tasks that have to end before those that are submitted may start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from hai_tui.cli.settings import Settings
from hai_tui.cli.show import note
from hai_tui.cli.texts import text

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


async def put_after(
    client: Client, settings: Settings, specs: Sequence[TaskSpec], wanted: Sequence[First]
) -> None:
    """Let each of them wait for all of these. Raises what names nothing."""
    from hai.client.ids import is_id
    from hai_tui.cli.task_view import status

    for first in wanted:
        number = await _number(client, first.task)
        if not is_id(first.task):  # a name may mean one of last week
            task = await client.tasks.get(number)
            note(settings, text("after.is", name=first.task, id=number, status=status(task)))
        for spec in specs:
            spec.options.after.add(task=number, outcome=first.outcome)


async def _number(client: Client, word: str) -> int:
    from hai.client.errors import NotFound

    try:
        return await client.tasks.resolve(word)
    except NotFound as error:
        if not {":", ","} & set(word):
            raise
        raise NotFound(error.message, hint=text("after.hint")) from error
