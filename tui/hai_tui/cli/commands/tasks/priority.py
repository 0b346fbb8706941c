"""`hai priority` and `hai rank`: the order in which tasks start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.bulk import Action, run_on_each
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.parameters import many_tasks, one_task
from hai_tui.cli.settings import Settings
from hai_tui.formatting.values import Priority, priority_name
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind
    from hai.v1.task_pb2 import Task


@click.command("priority", cls=HaiCommand)
@many_tasks
@click.argument("level", type=Priority(), metavar="LEVEL")
@click.pass_obj
def priority(settings: Settings, tasks: tuple[str, ...], kind: Kind, level: int) -> int:
    """Change the priority of tasks. LEVEL is a name such as HIGH, or its number.

    \b
    Examples:
      hai priority 12 HIGH
      hai priority 12 13 14 LOW
      hai priority 12 AUTO             the highest level that your quota allows
    """
    action = Action(lambda client, id: client.tasks.set_priority(id, level), _describe_priority)
    return run_on_each(settings, tasks, kind, action)


def _describe_priority(task: Task) -> str:
    return text("done.priority", priority=priority_name(task.priority))


@click.command("rank", cls=HaiCommand)
@one_task
@click.option("--first", is_flag=True, help="Before all of your tasks.")
@click.option("--before", metavar="TASK", help="Before this one.")
@click.pass_obj
def rank(settings: Settings, task: str, kind: Kind, first: bool, before: str | None) -> int:
    """Put a waiting task before your other tasks of the same group and priority.

    \b
    Examples:
      hai rank 14 --first
      hai rank 14 --before 12
    """
    if first == bool(before):
        raise click.UsageError("give either --first or --before TASK")

    async def move(client: Client, id: int) -> Task:
        next_id = await client.tasks.resolve(before, kind) if before else 0
        return await client.tasks.move(id, next_id)

    return run_on_each(settings, [task], kind, Action(move, lambda task: text("done.moved")))
