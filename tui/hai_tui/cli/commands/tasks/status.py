"""`hai status`: one task in detail, or a row for each of several tasks. `hai describe`: the yaml of submitted tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai.client.text.formatting import size_text
from hai_tui.cli.command import HaiCommand, TableCommand
from hai_tui.cli.commands.tasks.top import cluster_lines
from hai_tui.cli.output.follow import task_exit_code
from hai_tui.cli.output.output import dump_message, note_lost_connection, show, show_one
from hai_tui.cli.parameters import any_tasks, many_tasks
from hai_tui.cli.settings import Settings, with_client
from hai_tui.formatting.values import Span
from hai_tui.i18n import text
from hai_tui.views.goodput import checkpoint_times_sentence, goodput_sentences
from hai_tui.views.silent_agents import task_silence_text
from hai_tui.views.start_forecast import start_sentences
from hai_tui.views.tasks import OWN, RANKS, TASKS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind
    from hai.v1.task_pb2 import Task


_STATES = ("finished", "running", "suspended")
_OWN_UNFINISHED = "user:me -state:finished"


class _StatusCommand(TableCommand):
    """Lets `--wait` stand without a value. A value needs `=`; otherwise a TASK after `--wait` would be taken for it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace `--wait` by the option with its default value."""
        return super().parse_args(ctx, [_WAIT_FOR_END if arg == "--wait" else arg for arg in args])


_WAIT_FOR_END = "--wait=finished"


@click.command("status", cls=_StatusCommand)
@any_tasks
@click.option(
    "--wait", type=click.Choice(_STATES), metavar="[=STATE]", help="Wait for this state first."
)
@click.option("--timeout", type=Span(), metavar="TIME", help="How long to wait, such as 10m.")
@with_client
async def status(
    settings: Settings,
    client: Client,
    tasks: tuple[str, ...],
    kind: Kind,
    wait: str | None,
    timeout: float | None,
) -> int:
    """Show a task: its state, why it is in it, its ranks, and what its time on nodes was worth.
    An agent that the server has not heard for 10 seconds is shown as silent.
    Several tasks are shown as rows. Without TASK it shows the cluster and your unfinished tasks.

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
    if not tasks and (wait or timeout is not None):
        raise click.UsageError("--wait and --timeout need a TASK to wait for")
    if not tasks:
        await _show_overview(client, settings)
        return 0
    ids = [await client.tasks.resolve(task, kind) for task in tasks]
    if wait:
        await client.tasks.wait_all(ids, wait, timeout, note_lost_connection(settings))
    rows = [await client.tasks.get(id) for id in ids]
    if len(rows) > 1:
        show(settings, TASKS, rows)
    else:
        await _add_predicted_start(client, rows[0])
        _show_task(settings, rows[0])
    return next((code for task in rows if (code := _exit_code_after_wait(task, wait))), 0)


async def _show_overview(client: Client, settings: Settings) -> None:
    """Show one line for each group of nodes, and the caller's unfinished tasks."""
    groups = await client.nodes.groups()
    own_tasks = [task async for task in client.tasks.all(filter=_OWN_UNFINISHED)]
    if settings.sentences:
        running = await client.tasks.list(filter="state:running", page_size=1, count=True)
        waiting = sum(group.waiting_tasks for group in groups)
        for line in cluster_lines(groups, running.total, waiting):
            click.echo(line)
        click.echo()
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        show(settings, OWN, own_tasks, {"groups": [to_dict(group) for group in groups]})
    else:
        show(settings, OWN, own_tasks)


async def _add_predicted_start(client: Client, task: Task) -> None:
    """Fetch the predicted start of a waiting task, which only the explanation contains."""
    if task.waiting.reason:
        waiting = (await client.tasks.explain(task.id)).waiting
        task.waiting.predicted_start.CopyFrom(waiting.predicted_start)


def _show_task(settings: Settings, task: Task) -> None:
    silent = task_silence_text(task, settings.clock())
    if silent and settings.sentences and not settings.columns:
        click.echo(text("silent.status", id=task.id, silent=silent) + "\n")
    show_one(settings, TASKS, task)
    if not settings.sentences or settings.columns:
        return
    run_reason = task.run.reason if task.run.ranks else ""
    for sentence in (task.reason, task.waiting.message):
        if sentence and sentence != run_reason:
            click.echo(f"\n{sentence}")
    for line in start_sentences(task.waiting.predicted_start, settings.clock()):
        click.echo(line)
    if task.run.ranks:
        click.echo(f"\nrun {task.run.number}" + (f": {task.run.reason}" if task.run.reason else ""))
        show(settings, RANKS, task.run.ranks)
    _print_goodput(settings, task)
    _print_dropped_output(task)
    _print_last_lines(task)


def _print_goodput(settings: Settings, task: Task) -> None:
    lines = [*goodput_sentences(task.goodput, settings.clock())]
    lines += filter(None, [checkpoint_times_sentence(task.run)])
    if lines:
        click.echo("\n" + "\n".join(lines))


def _print_dropped_output(task: Task) -> None:
    """Print how much output was dropped because the log of a rank reached its limit."""
    ranks = [rank for rank in task.run.ranks if rank.log_dropped_bytes]
    for number, rank in enumerate(ranks):
        amount = size_text(rank.log_dropped_bytes)
        if rank.log_dropped_lines:
            amount = text("status.dropped_lines", count=rank.log_dropped_lines, size=amount)
        click.echo(
            ("" if number else "\n") + text("status.dropped", rank=rank.index, dropped=amount)
        )


def _print_last_lines(task: Task) -> None:
    from hai.client.tasks.diagnosis import diagnose

    for rank in task.run.ranks:
        if rank.last_lines:
            click.echo(f"\nlast lines of rank {rank.index}:\n{rank.last_lines.rstrip()}")
    if (diagnosis := diagnose(task)) and diagnosis.likely:
        click.echo(f"\nlikely cause: {diagnosis.likely}")


def _exit_code_after_wait(task: Task, wait: str | None) -> int:
    """Return the exit code of a finished task if the command has waited for it, else 0."""
    from hai.v1.task_pb2 import TASK_STATE_FINISHED

    return task_exit_code(task) if wait and task.state == TASK_STATE_FINISHED else 0


@click.command("describe", cls=HaiCommand)
@many_tasks
@with_client
async def describe(settings: Settings, client: Client, tasks: tuple[str, ...], kind: Kind) -> None:
    """Print what tasks were submitted with, as yaml that `hai run` takes back.

    \b
    Examples:
      hai describe 12 > again.yaml && hai run again.yaml
      hai describe $(hai list -q --tag sweep --outcome failed) | hai run -
    """
    from hai.client.taskfile.spec import to_yaml

    ids = [await client.tasks.resolve(task, kind) for task in tasks]
    for number, spec in enumerate([(await client.tasks.get(id)).spec for id in ids]):
        if settings.json:
            dump_message(settings, spec)
        else:
            click.echo(("---\n" if number else "") + to_yaml(spec), nl=False)
