"""`hai stop`, `hai suspend` and `hai resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.bulk import Action, on_each
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.settings import Settings
from hai_tui.cli.task_argument import many_tasks
from hai_tui.formatting.values import Span
from hai_tui.i18n import text
from hai_tui.views.tasks import status

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task

_FINAL = frozenset({"STOP", "TIMEOUT", "MANUAL_STOP", "MANUAL_SUCCEEDED", "MANUAL_FAILED"})
"""Stop codes of runs that end their task."""

_STOP_HELP = """End tasks. A running program is asked to save first. Asking twice is no error.

Several tasks, tasks of others, and tasks for which others wait (`hai list after:12`) are asked about
at a terminal, unless --yes is given.

\b
Examples:
  hai stop 12
  hai stop 12 train --yes
  hai stop 12 --succeeded          count it as a success
  hai stop $(hai list -q --tag sweep)
"""

_SUSPEND_HELP = """Ask running programs to save and leave their nodes; the tasks queue again.

\b
Examples:
  hai suspend 12                   it starts again when it is its turn
  hai suspend 12 --hold            not before `hai resume 12`
  hai suspend 12 --delay 2h        not before two hours have passed
"""

_RESUME_HELP = """Let held tasks start again when it is their turn.

\b
Examples:
  hai resume 12
"""

_YES = click.option("-y", "--yes", is_flag=True, help="Ask nothing.")


@click.command("stop", cls=HaiCommand, help=_STOP_HELP)
@many_tasks
@click.option("--succeeded", is_flag=True, help="Count the tasks as successes.")
@click.option("--failed", is_flag=True, help="Count the tasks as failures.")
@_YES
@click.pass_obj
def stop(
    settings: Settings, tasks: tuple[str, ...], kind: Any, succeeded: bool, failed: bool, yes: bool
) -> int:
    """The function behind the command."""
    from hai.v1.task_pb2 import TaskOutcome

    if succeeded and failed:
        raise click.UsageError("--succeeded and --failed exclude one another")
    wanted = "SUCCEEDED" if succeeded else "FAILED" if failed else "UNSPECIFIED"
    outcome = TaskOutcome.Value(f"TASK_OUTCOME_{wanted}")

    async def do(client: Client, id: int) -> Task:
        return await client.tasks.stop(id, outcome)

    action = Action(do, _stopped, "stop", yes, ends=True)
    return on_each(settings, tasks, kind, action)  # the end of one lets those behind it start


def _stopped(task: Task) -> str:
    from hai.v1.task_pb2 import TASK_STATE_FINISHED

    ended = task.state == TASK_STATE_FINISHED
    return text("done.ended", status=status(task)) if ended else text("done.stopping")


@click.command("suspend", cls=HaiCommand, help=_SUSPEND_HELP)
@many_tasks
@click.option("--hold", is_flag=True, help="Keep them off the nodes until `hai resume`.")
@click.option("--delay", type=Span(), default="0", metavar="TIME", help="Not before 90s, 10m, 2h …")
@_YES
@click.pass_obj
def suspend(
    settings: Settings, tasks: tuple[str, ...], kind: Any, hold: bool, delay: float, yes: bool
) -> int:
    """The function behind the command."""

    async def do(client: Client, id: int) -> Task:
        return await client.tasks.suspend(id, hold, delay)

    return on_each(settings, tasks, kind, Action(do, _suspended, "suspend", yes))


def _suspended(task: Task) -> str:
    if status(task) in ("RUNNING", "SUSPENDING", "TERMINATING"):
        return text("done.suspending")
    return text("done.held", id=task.id) if task.held else _queued(task, "done.suspended")


def _queued(task: Task, message_key: str) -> str:
    """It may still wait for others, who go first."""
    first = ", ".join(map(str, task.awaited))
    return text("done.after", tasks=first) if first else text(message_key)


@click.command("resume", cls=HaiCommand, help=_RESUME_HELP)
@many_tasks
@click.pass_obj
def resume(settings: Settings, tasks: tuple[str, ...], kind: Any) -> int:
    """The function behind the command."""

    async def do(client: Client, id: int) -> Task:
        return await client.tasks.resume(id)

    return on_each(settings, tasks, kind, Action(do, _resumed))


def _resumed(task: Task) -> str:
    """What will be; a task that is being stopped ends, whatever is asked of it."""
    from hai.client.text.enum_names import stop_code_names

    at = status(task)
    final = not _FINAL.isdisjoint(stop_code_names(task.run.stop_code))
    if at == "STOPPING" or (at == "TERMINATING" and final):
        return text("done.resumed.stopping", id=task.id)
    if at in ("SUSPENDING", "TERMINATING"):
        return text("done.resumed.later")
    if at in ("CREATED", "BUILDING", "RUNNING"):
        return text("done.resumed.runs")
    return _queued(task, "done.resumed")
