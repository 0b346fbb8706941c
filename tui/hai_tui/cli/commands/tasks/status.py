"""`hai status`: one task, or a row for each of several; `hai describe`: what one was submitted with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hai.client.text.sizes import size_text
from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand, TableCommand
from hai_tui.cli.commands.tasks.top import cluster_lines
from hai_tui.cli.output.follow import task_exit_code
from hai_tui.cli.output.output import dump, note_lost_connection, show, show_one
from hai_tui.cli.settings import Settings
from hai_tui.cli.task_argument import any_tasks, many_tasks
from hai_tui.formatting.values import Span
from hai_tui.i18n import text
from hai_tui.views.agent_silence import silent_task
from hai_tui.views.goodput import sentences
from hai_tui.views.start_forecast import sentences as start_sentences
from hai_tui.views.tasks import OWN, RANKS, TASKS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Group
    from hai.v1.task_pb2 import Task
    from hai.v1.task_spec_pb2 import TaskSpec

_STATES = ("finished", "running", "suspended")
_MINE = "user:me -state:finished"

_STATUS_HELP = """Show a task: its state, why it is in it, its ranks, and what its time on nodes was worth.
An agent that the server has not heard for 10 seconds is shown as silent.
Of several tasks each has a row. Without TASK it shows the cluster, and your tasks that have not ended.

With --wait it first waits for all of them to be finished (or, with --wait=running, in another
state) and then exits 0, with the exit code of the first that has ended otherwise, or with 124 when
--timeout has passed.

\b
Examples:
  hai status
  hai status 12
  hai status train --json | jq .run.ranks
  hai status 12 --wait && echo done
  hai status 12 --wait=running --timeout 10m
  hai status $(hai list -q --tag sweep) --wait
"""

_DESCRIBE_HELP = """Print what tasks were submitted with, as yaml that `hai run` takes back.

\b
Examples:
  hai describe 12 > again.yaml && hai run again.yaml
  hai describe $(hai list -q --tag sweep --outcome failed) | hai run -
"""


class _StatusCommand(TableCommand):
    """Lets `--wait` stand without a value: the value needs a =, so a TASK is never taken for it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As always, with `--wait` written out."""
        return super().parse_args(ctx, [_WAIT if arg == "--wait" else arg for arg in args])


_WAIT = "--wait=finished"


@click.command("status", cls=_StatusCommand, help=_STATUS_HELP)
@any_tasks
@click.option("--wait", type=click.Choice(_STATES), metavar="[=STATE]", help="Wait first.")
@click.option("--timeout", type=Span(), metavar="TIME", help="How long to wait, such as 10m.")
@click.pass_obj
def status(
    settings: Settings, tasks: tuple[str, ...], kind: Any, wait: str | None, timeout: float | None
) -> int:
    """The function behind the command."""
    if not tasks and (wait or timeout is not None):
        raise click.UsageError("--wait and --timeout need a TASK to wait for")

    async def work(client: Client) -> int:
        if not tasks:
            return await _overview(client, settings)
        ids = [await client.tasks.resolve(task, kind) for task in tasks]
        if wait:
            await client.tasks.wait_all(ids, wait, timeout, note_lost_connection(settings))
        found = [await client.tasks.get(id) for id in ids]
        if len(found) > 1:
            show(settings, TASKS, found)
        else:
            await _predict(client, found[0])
            _show(settings, found[0])
        return next((code for task in found if (code := _exit_code(task, wait))), 0)

    return call(settings, work)


async def _overview(client: Client, settings: Settings) -> int:
    """The cluster in a few lines, and the caller's own tasks that have not ended."""
    groups = await client.nodes.groups()
    mine = [task async for task in client.tasks.all(filter=_MINE)]
    if settings.sentences:
        running = await client.tasks.list(filter="state:running", page_size=1, count=True)
        waiting = sum(group.waiting_tasks for group in groups)
        for line in cluster_lines(groups, running.total, waiting):
            click.echo(line)
        click.echo()
    structured = settings.output in ("json", "yaml")
    show(settings, OWN, mine, {"groups": _as_dicts(groups)} if structured else None)
    return 0


def _as_dicts(groups: Sequence[Group]) -> list[dict[str, Any]]:
    from hai_tui.formatting.documents import to_dict

    return [to_dict(group) for group in groups]


async def _predict(client: Client, task: Task) -> None:
    if task.waiting.reason:
        waiting = (await client.tasks.explain(task.id)).waiting
        task.waiting.predicted_start.CopyFrom(waiting.predicted_start)


def _show(settings: Settings, task: Task) -> None:
    silent = silent_task(task, settings.clock())
    if silent and settings.sentences and not settings.columns:
        click.echo(text("silent.status", id=task.id, silent=silent) + "\n")
    show_one(settings, TASKS, task)
    if not settings.sentences or settings.columns:
        return
    told_below = task.run.reason if task.run.ranks else ""
    for sentence in (task.reason, task.waiting.message):
        if sentence and sentence != told_below:
            click.echo(f"\n{sentence}")
    for line in start_sentences(task.waiting.predicted_start, settings.clock()):
        click.echo(line)
    if task.run.ranks:
        click.echo(f"\nrun {task.run.number}" + (f": {task.run.reason}" if task.run.reason else ""))
        show(settings, RANKS, task.run.ranks)
    _goodput(settings, task)
    _dropped_output(task)
    _last_lines(task)


def _goodput(settings: Settings, task: Task) -> None:
    lines = list(sentences(task.goodput, settings.clock()))
    if lines:
        click.echo("\n" + "\n".join(lines))


def _dropped_output(task: Task) -> None:
    """What ranks have printed beyond the limit of their logs."""
    found = [rank for rank in task.run.ranks if rank.log_dropped_bytes]
    for number, rank in enumerate(found):
        amount = size_text(rank.log_dropped_bytes)
        if rank.log_dropped_lines:
            amount = text("status.dropped_lines", count=rank.log_dropped_lines, size=amount)
        click.echo(
            ("" if number else "\n") + text("status.dropped", rank=rank.index, dropped=amount)
        )


def _last_lines(task: Task) -> None:
    from hai.client.tasks.diagnosis import diagnose

    for rank in task.run.ranks:
        if rank.last_lines:
            click.echo(f"\nlast lines of rank {rank.index}:\n{rank.last_lines.rstrip()}")
    if (diagnosis := diagnose(task)) and diagnosis.likely:
        click.echo(f"\nlikely cause: {diagnosis.likely}")


def _exit_code(task: Task, wait: str | None) -> int:
    from hai.v1.task_pb2 import TASK_STATE_FINISHED

    return task_exit_code(task) if wait and task.state == TASK_STATE_FINISHED else 0


@click.command("describe", cls=HaiCommand, help=_DESCRIBE_HELP)
@many_tasks
@click.pass_obj
def describe(settings: Settings, tasks: tuple[str, ...], kind: Any) -> int:
    """The function behind the command."""

    async def work(client: Client) -> Sequence[Task]:
        ids = [await client.tasks.resolve(task, kind) for task in tasks]
        return [await client.tasks.get(id) for id in ids]

    for number, found in enumerate(call(settings, work)):
        _describe(settings, found.spec, first=not number)
    return 0


def _describe(settings: Settings, spec: TaskSpec, *, first: bool) -> None:
    if settings.json:
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(spec))
    else:
        from hai.client.taskfile.spec import to_yaml

        click.echo(("" if first else "---\n") + to_yaml(spec), nl=False)
