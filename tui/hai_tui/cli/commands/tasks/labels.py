"""`hai tag`, `hai untag`, `hai star` and `hai unstar`: labels and stars of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.bulk import Action, run_on_each
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.parameters import many_tasks, one_task
from hai_tui.cli.settings import Settings
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.tasks.references import Kind
    from hai.v1.task_pb2 import Task

_LABELS = click.argument("labels", metavar="TAG...", nargs=-1, required=True)


@click.command("tag", cls=HaiCommand)
@one_task
@_LABELS
@click.pass_obj
def tag(settings: Settings, task: str, kind: Kind, labels: tuple[str, ...]) -> int:
    """Add labels to a task.

    \b
    Examples:
      hai tag 12 sweep lr-0.1
    """
    action = Action(lambda client, id: client.tasks.tag(id, add=labels), _describe_tags)
    return run_on_each(settings, [task], kind, action)


@click.command("untag", cls=HaiCommand)
@one_task
@_LABELS
@click.pass_obj
def untag(settings: Settings, task: str, kind: Kind, labels: tuple[str, ...]) -> int:
    """Remove labels from a task.

    \b
    Examples:
      hai untag 12 old
    """
    action = Action(lambda client, id: client.tasks.tag(id, remove=labels), _describe_tags)
    return run_on_each(settings, [task], kind, action)


def _describe_tags(task: Task) -> str:
    return text("done.tags", tags=", ".join(task.tags) or "-")


@click.command("star", cls=HaiCommand)
@many_tasks
@click.pass_obj
def star(settings: Settings, tasks: tuple[str, ...], kind: Kind) -> int:
    """Mark tasks.

    \b
    Examples:
      hai star 12 13
    """
    action = Action(lambda client, id: client.tasks.star(id, True), _describe_star)
    return run_on_each(settings, tasks, kind, action)


@click.command("unstar", cls=HaiCommand)
@many_tasks
@click.pass_obj
def unstar(settings: Settings, tasks: tuple[str, ...], kind: Kind) -> int:
    """Unmark tasks.

    \b
    Examples:
      hai unstar 12 13
    """
    action = Action(lambda client, id: client.tasks.star(id, False), _describe_star)
    return run_on_each(settings, tasks, kind, action)


def _describe_star(task: Task) -> str:
    return text("done.starred" if task.starred else "done.unstarred")
