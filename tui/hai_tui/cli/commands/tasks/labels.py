"""`hai tag`, `hai untag`, `hai star` and `hai unstar`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.bulk import Action, on_each
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.settings import Settings
from hai_tui.cli.task_argument import many_tasks, one_task
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task

_TAGS = click.argument("labels", metavar="TAG...", nargs=-1, required=True)


def _help(action: str, example: str) -> str:
    return f"{action}\n\n\b\nExamples:\n  {example}\n"


@click.command(
    "tag", cls=HaiCommand, help=_help("Add labels to a task.", "hai tag 12 sweep lr-0.1")
)
@one_task
@_TAGS
@click.pass_obj
def tag(settings: Settings, task: str, kind: Any, labels: tuple[str, ...]) -> int:
    """The function behind the command."""

    async def do(client: Client, id: int) -> Task:
        return await client.tasks.tag(id, add=labels)

    return on_each(settings, [task], kind, Action(do, _tagged))


@click.command(
    "untag", cls=HaiCommand, help=_help("Remove labels from a task.", "hai untag 12 old")
)
@one_task
@_TAGS
@click.pass_obj
def untag(settings: Settings, task: str, kind: Any, labels: tuple[str, ...]) -> int:
    """The function behind the command."""

    async def do(client: Client, id: int) -> Task:
        return await client.tasks.tag(id, remove=labels)

    return on_each(settings, [task], kind, Action(do, _tagged))


def _tagged(task: Task) -> str:
    return text("done.tags", tags=", ".join(task.tags) or "-")


@click.command("star", cls=HaiCommand, help=_help("Mark tasks.", "hai star 12 13"))
@many_tasks
@click.pass_obj
def star(settings: Settings, tasks: tuple[str, ...], kind: Any) -> int:
    """The function behind the command."""
    return on_each(settings, tasks, kind, _starring(True))


@click.command("unstar", cls=HaiCommand, help=_help("Unmark tasks.", "hai unstar 12 13"))
@many_tasks
@click.pass_obj
def unstar(settings: Settings, tasks: tuple[str, ...], kind: Any) -> int:
    """The function behind the command."""
    return on_each(settings, tasks, kind, _starring(False))


def _starring(wanted: bool) -> Action:
    async def do(client: Client, id: int) -> Task:
        return await client.tasks.star(id, wanted)

    return Action(do, lambda task: text("done.starred" if task.starred else "done.unstarred"))
