"""`--after TASK[:OUTCOME]`: tasks that must end before the submitted ones may start."""

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
_MAX_DEPENDENCIES = 1000


class Dependency(NamedTuple):
    """A task as the user names it, or `tag:TAG`, and the required outcome.

    The outcome is empty if the user gave none; the server then uses its default.
    """

    task: str
    outcome: str


class After(click.ParamType[Dependency]):
    """A dependency on the command line: 12, fit, fit:ended or tag:sweep. The name of a task may contain a colon."""

    name = "TASK[:OUTCOME]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Dependency:
        """Split off the outcome. Only the server knows whether the task exists."""
        task, _, outcome = str(value).rpartition(":")
        return Dependency(task, outcome) if outcome in _OUTCOMES else Dependency(str(value), "")


async def add_dependencies(
    client: Client,
    settings: Settings,
    specs: Sequence[TaskSpec],
    dependencies: Sequence[Dependency],
) -> None:
    """Let each spec wait for all of the dependencies. Raise NotFound for a name without a task."""
    outcomes = [
        (id, dependency.outcome)
        for dependency in dependencies
        for id in await _resolve(client, settings, dependency.task)
    ]
    for spec in specs:
        for id, outcome in dict.fromkeys(outcomes):
            spec.options.after.add(task=id, outcome=outcome)


async def _resolve(client: Client, settings: Settings, reference: str) -> Sequence[int]:
    kind, _, tag = reference.partition(":")
    try:
        if kind == "tag":
            return await _resolve_tag(client, tag)
        id = await client.tasks.resolve(reference)
    except NotFound as error:
        raise NotFound(error.message, reason=error.reason, hint=text("after.hint")) from error
    if not is_id(reference):  # the name may belong to an old task
        await _note_resolution(client, settings, reference, id)
    return [id]


async def _note_resolution(client: Client, settings: Settings, name: str, id: int) -> None:
    from hai_tui.views.tasks import status

    status_name = status(await client.tasks.get(id))
    note(settings, text("after.is", name=name, id=id, status=status_name))


async def _resolve_tag(client: Client, tag: str) -> Sequence[int]:
    """Return the ids of the caller's tasks with that tag.

    Of several tasks with one name only the newest counts, because it replaces earlier ones that failed.
    """
    newest: dict[str, int] = {}
    async for task in client.tasks.all(filter=f"user:me tag:{quote(tag)}"):
        if tag in task.tags:  # the filter may find more, as it cannot contain a quote
            newest.setdefault(task.name, task.id)
    if not newest:
        raise NotFound(f"no task of yours has the tag {tag!r}")
    if len(newest) > _MAX_DEPENDENCIES:
        raise UsageError(
            f"{len(newest)} tasks have the tag {tag!r}, and a task waits for at most {_MAX_DEPENDENCIES}",
            hint=f"wait here: hai status --wait $(hai list -q --tag {tag}), then submit",
        )
    return sorted(newest.values())
