"""`--after TASK[:OUTCOME]`: tasks that have to end before those that are submitted may start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from hai.client.errors import NotFound, UsageError
from hai.client.tasks.filters import quote
from hai.client.tasks.references import is_id
from hai_tui.cli.output.output import note
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_spec_pb2 import TaskSpec

_OUTCOMES = ("succeeded", "failed", "ended")
_MOST = 1000


class Dependency(NamedTuple):
    """A task as people call it, or tag:TAG, and how it has to end; empty: as the server says."""

    task: str
    outcome: str


class After(click.ParamType[Dependency]):
    """12, fit, fit:ended, tag:sweep. A name may have a colon itself."""

    name = "TASK[:OUTCOME]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Dependency:
        """Whether there is such a task, the server knows."""
        task, _, outcome = str(value).rpartition(":")
        return Dependency(task, outcome) if outcome in _OUTCOMES else Dependency(str(value), "")


async def add_dependencies(
    client: Client,
    settings: Settings,
    specs: Sequence[TaskSpec],
    dependencies: Sequence[Dependency],
) -> None:
    """Let each of them wait for all of these. Raises what names nothing."""
    found = [
        (id, first.outcome)
        for first in dependencies
        for id in await _resolve(client, settings, first.task)
    ]
    for spec in specs:
        for id, outcome in dict.fromkeys(found):
            spec.options.after.add(task=id, outcome=outcome)


async def _resolve(client: Client, settings: Settings, reference: str) -> Sequence[int]:
    kind, _, tag = reference.partition(":")
    try:
        if kind == "tag":
            return await _tagged(client, tag)
        id = await client.tasks.resolve(reference)
    except NotFound as error:
        raise NotFound(error.message, reason=error.reason, hint=text("after.hint")) from error
    if not is_id(reference):  # a name may mean one of last week
        await _note_resolution(client, settings, reference, id)
    return [id]


async def _note_resolution(client: Client, settings: Settings, name: str, id: int) -> None:
    from hai_tui.views.tasks import status

    status_name = status(await client.tasks.get(id))
    note(settings, text("after.is", name=name, id=id, status=status_name))


async def _tagged(client: Client, tag: str) -> Sequence[int]:
    """The caller's; of a name the newest, for who submits the failed ones again does not mean them."""
    newest: dict[str, int] = {}
    async for task in client.tasks.all(filter=f"user:me tag:{quote(tag)}"):
        if tag in task.tags:  # the filter may have found more: it cannot say a quote
            newest.setdefault(task.name, task.id)
    if not newest:
        raise NotFound(f"no task of yours has the tag {tag!r}")
    if len(newest) > _MOST:
        raise UsageError(
            f"{len(newest)} tasks have the tag {tag!r}, and a task waits for at most {_MOST}",
            hint=f"wait here: hai status --wait $(hai list -q --tag {tag}), then submit",
        )
    return sorted(newest.values())
