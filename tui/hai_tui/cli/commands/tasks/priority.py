"""`hai priority` and `hai rank`: who comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.bulk import Action, on_each
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.settings import Settings
from hai_tui.cli.task_argument import many_tasks, one_task
from hai_tui.formatting.values import Priority, priority_name
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task

_PRIORITY_HELP = """Change the priority of tasks. LEVEL is a name such as HIGH, or its number.

\b
Examples:
  hai priority 12 HIGH
  hai priority 12 13 14 LOW
  hai priority 12 AUTO             the highest level that your quota allows
"""

_RANK_HELP = """Put a waiting task before your other tasks of the same group and priority.

\b
Examples:
  hai rank 14 --first
  hai rank 14 --before 12
"""


@click.command("priority", cls=HaiCommand, help=_PRIORITY_HELP)
@many_tasks
@click.argument("level", type=Priority(), metavar="LEVEL")
@click.pass_obj
def priority(settings: Settings, tasks: tuple[str, ...], kind: Any, level: int) -> int:
    """The function behind the command."""

    async def do(client: Client, id: int) -> Task:
        return await client.tasks.set_priority(id, level)

    return on_each(settings, tasks, kind, Action(do, _prioritised))


def _prioritised(task: Task) -> str:
    return text("done.priority", priority=priority_name(task.priority))


@click.command("rank", cls=HaiCommand, help=_RANK_HELP)
@one_task
@click.option("--first", is_flag=True, help="Before all of your tasks.")
@click.option("--before", metavar="TASK", help="Before this one.")
@click.pass_obj
def rank(settings: Settings, task: str, kind: Any, first: bool, before: str | None) -> int:
    """The function behind the command."""
    if first == bool(before):
        raise click.UsageError("give either --first or --before TASK")

    async def do(client: Client, id: int) -> Task:
        other = await client.tasks.resolve(before, kind) if before else 0
        return await client.tasks.move(id, other)

    return on_each(settings, [task], kind, Action(do, lambda task: text("done.moved")))
