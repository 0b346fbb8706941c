"""`hai logs`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.follow import Lines, follow, print_lines, print_wait_reason
from hai_tui.cli.settings import Settings
from hai_tui.cli.task_argument import many_tasks
from hai_tui.cli.time_options import before_now
from hai_tui.formatting.table import printable
from hai_tui.formatting.values import ranks

if TYPE_CHECKING:
    from hai.client.client import Client

_HELP = """Print what a task's programs have printed, over all its runs; of several tasks one after the other,
the name before each line.

With -f it goes on until the task ends, through suspensions and server restarts, and exits with the
task's exit code. Ctrl-C stops following; the task runs on.

\b
Examples:
  hai logs 12 -f                   follow rank 0
  hai logs train -r all --tail 20  the last lines of every rank
  hai logs 12 -r 0-3,7 --since 10m --grep 'loss|error'
  hai logs 12 --previous           the run before this one
  hai logs $(hai list -q --tag sweep) --grep loss
"""


def _ranks(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    return ranks(value)


def _pattern(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    try:
        return re.compile(value) if value is not None else None
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}") from None


@click.command("logs", cls=HaiCommand, help=_HELP)
@many_tasks
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the task ends.")
@click.option(
    "-r",
    "--rank",
    "ranks",
    callback=_ranks,
    default="0",
    show_default=True,
    help="all, 0, 0-3 or 0-3,7.",
)
@click.option(
    "--tail", type=click.IntRange(1), metavar="N", default=None, help="Last lines of each rank."
)
@click.option("--since", metavar="TIME", callback=before_now, help="10m, 2h, or 2026-11-21T11:08.")
@click.option("--grep", callback=_pattern, metavar="REGEX", help="Only lines that match.")
@click.option("--timestamps/--no-timestamps", default=False, help="Print when each line came.")
@click.option("--run", type=click.IntRange(1), metavar="N", help="Only this run.")
@click.option("--previous", is_flag=True, help="Only the run before the current one.")
@click.pass_obj
def logs(
    settings: Settings,
    /,
    tasks: tuple[str, ...],
    kind: Any,
    following: bool,
    previous: bool,
    **options: Any,
) -> int:
    """The function behind the command."""
    if previous and (following or options["run"]):
        raise click.UsageError("--previous goes with neither -f nor --run")
    if following and len(tasks) > 1:
        raise click.UsageError("-f follows one task, and these are several")

    async def resolve(client: Client, task: str = tasks[0]) -> tuple[int, Lines]:
        id = await client.tasks.resolve(task, kind)
        run = await _previous(client, id) if previous else options["run"] or 0
        if following:
            await client.tasks.get(id)  # says at once what a stream would wait out
        else:
            await _has(client, id, run, options["ranks"])
        return id, _lines(settings, run, options)

    async def once(client: Client) -> int:
        for task in tasks:
            id, lines = await resolve(client, task)
            if len(tasks) > 1:
                lines = replace(lines, task=printable((await client.tasks.get(id)).name))
            if not await print_lines(client, id, lines, follow=False):
                await print_wait_reason(client, id, settings)
        return 0

    if not following:
        return call(settings, once)
    return follow(settings, *call(settings, resolve))


def _lines(settings: Settings, run: int, options: dict[str, Any]) -> Lines:
    return Lines(
        ranks=options["ranks"],
        run=run,
        tail=options["tail"] or 0,
        since=options["since"],
        grep=options["grep"],
        timestamps=options["timestamps"],
        output=settings.output,
    )


async def _has(client: Client, id: int, run: int, ranks: tuple[int, ...]) -> None:
    """A rank or run that does not exist is told, since an empty log would hide the mistake."""
    if run < 2 and (not ranks or min(ranks) == 0):
        return
    task = await client.tasks.get(id)
    if run > task.run_count:
        raise click.UsageError(f"task {id} has no run {run}; it has had {task.run_count}")
    last = max([task.node_count - 1, *(rank.index for rank in task.run.ranks)])
    if ranks and min(ranks) > last:
        raise click.UsageError(f"task {id} has no rank {min(ranks)}; its last one is {last}")


async def _previous(client: Client, id: int) -> int:
    current = (await client.tasks.get(id)).run_count
    if current < 2:
        raise click.ClickException(f"task {id} has no run before the current one")
    return current - 1
