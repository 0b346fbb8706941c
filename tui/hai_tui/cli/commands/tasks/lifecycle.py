"""`hai stop`, `hai suspend` and `hai resume`: end tasks, suspend them, let them start again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.bulk import Action, run_on_each
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.parameters import many_tasks, yes_option
from hai_tui.cli.settings import Settings
from hai_tui.formatting.values import Span
from hai_tui.i18n import text
from hai_tui.views.tasks import status

if TYPE_CHECKING:
    from hai.client.tasks.references import Kind
    from hai.v1.task_pb2 import Task

_FINAL_STOP_CODES = frozenset(
    {"STOP", "TIMEOUT", "MANUAL_STOP", "MANUAL_SUCCEEDED", "MANUAL_FAILED"}
)
"""A run that ends with one of these also ends its task."""


@click.command("stop", cls=HaiCommand)
@many_tasks
@click.option("--succeeded", is_flag=True, help="Count the tasks as successes.")
@click.option("--failed", is_flag=True, help="Count the tasks as failures.")
@yes_option
@click.pass_obj
def stop(
    settings: Settings, tasks: tuple[str, ...], kind: Kind, succeeded: bool, failed: bool, yes: bool
) -> int:
    """End tasks. A running program is asked to save first. Ending a task twice is not an error.

    At a terminal it asks before it ends several tasks, tasks of others, or tasks that others wait for
    (`hai list after:12`), unless --yes is given.

    \b
    Examples:
      hai stop 12
      hai stop 12 train --yes
      hai stop 12 --succeeded          count it as a success
      hai stop $(hai list -q --tag sweep)
    """
    from hai.v1.task_pb2 import TaskOutcome

    if succeeded and failed:
        raise click.UsageError("--succeeded and --failed exclude one another")
    outcome_name = "SUCCEEDED" if succeeded else "FAILED" if failed else "UNSPECIFIED"
    outcome = TaskOutcome.Value(f"TASK_OUTCOME_{outcome_name}")
    action = Action(
        lambda client, id: client.tasks.stop(id, outcome),
        _describe_stopped,
        "stop",
        yes,
        ends_task=True,
    )
    return run_on_each(settings, tasks, kind, action)


def _describe_stopped(task: Task) -> str:
    from hai.v1.task_pb2 import TASK_STATE_FINISHED

    is_finished = task.state == TASK_STATE_FINISHED
    return text("done.ended", status=status(task)) if is_finished else text("done.stopping")


@click.command("suspend", cls=HaiCommand)
@many_tasks
@click.option("--hold", is_flag=True, help="Keep them off the nodes until `hai resume`.")
@click.option("--delay", type=Span(), default="0", metavar="TIME", help="Not before 90s, 10m, 2h …")
@yes_option
@click.pass_obj
def suspend(
    settings: Settings, tasks: tuple[str, ...], kind: Kind, hold: bool, delay: float, yes: bool
) -> int:
    """Ask running programs to save and leave their nodes; the tasks queue again.

    \b
    Examples:
      hai suspend 12                   it starts again when it is its turn
      hai suspend 12 --hold            not before `hai resume 12`
      hai suspend 12 --delay 2h        not before two hours have passed
    """
    action = Action(
        lambda client, id: client.tasks.suspend(id, hold, delay),
        _describe_suspended,
        "suspend",
        yes,
    )
    return run_on_each(settings, tasks, kind, action)


def _describe_suspended(task: Task) -> str:
    if status(task) in ("RUNNING", "SUSPENDING", "TERMINATING"):
        return text("done.suspending")
    return text("done.held", id=task.id) if task.held else _describe_queued(task, "done.suspended")


def _describe_queued(task: Task, message_key: str) -> str:
    """Say which tasks it waits for; if there are none, return the message of that key."""
    awaited = ", ".join(map(str, task.awaited))
    return text("done.after", tasks=awaited) if awaited else text(message_key)


@click.command("resume", cls=HaiCommand)
@many_tasks
@click.pass_obj
def resume(settings: Settings, tasks: tuple[str, ...], kind: Kind) -> int:
    """Let held tasks start again when it is their turn.

    \b
    Examples:
      hai resume 12
    """
    action = Action(lambda client, id: client.tasks.resume(id), _describe_resumed)
    return run_on_each(settings, tasks, kind, action)


def _describe_resumed(task: Task) -> str:
    """Say what happens next. Resuming does not save a task that is being stopped."""
    from hai.client.text.formatting import stop_code_names

    status_name = status(task)
    is_final = not _FINAL_STOP_CODES.isdisjoint(stop_code_names(task.run.stop_code))
    if status_name == "STOPPING" or (status_name == "TERMINATING" and is_final):
        return text("done.resumed.stopping", id=task.id)
    if status_name in ("SUSPENDING", "TERMINATING"):
        return text("done.resumed.later")
    if status_name in ("CREATED", "BUILDING", "RUNNING"):
        return text("done.resumed.runs")
    return _describe_queued(task, "done.resumed")
