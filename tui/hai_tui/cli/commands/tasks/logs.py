"""`hai logs`: the output of the programs of tasks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.follow import LogQuery, follow, print_lines, print_wait_reason
from hai_tui.cli.parameters import many_tasks, parse_ranks, since_option
from hai_tui.cli.settings import Settings, call_server
from hai_tui.formatting.table import printable

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind


def _parse_pattern(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    try:
        return re.compile(value) if value is not None else None
    except re.error as error:
        raise click.BadParameter(f"{value!r} is not a regular expression: {error}") from None


@click.command("logs", cls=HaiCommand)
@many_tasks
@click.option(
    "-f", "--follow", "following", is_flag=True, help="Print new lines until the task ends."
)
@click.option(
    "-r",
    "--rank",
    "ranks",
    callback=parse_ranks,
    default="0",
    show_default=True,
    help="all, 0, 0-3 or 0-3,7.",
)
@click.option(
    "--tail", type=click.IntRange(1), metavar="N", default=None, help="Last lines of each rank."
)
@since_option
@click.option("--grep", callback=_parse_pattern, metavar="REGEX", help="Only lines that match.")
@click.option("--timestamps/--no-timestamps", default=False, help="Print when each line came.")
@click.option("--run", type=click.IntRange(1), metavar="N", help="Only this run.")
@click.option("--previous", is_flag=True, help="Only the run before the current one.")
@click.pass_obj
def logs(
    settings: Settings,
    /,
    tasks: tuple[str, ...],
    kind: Kind,
    following: bool,
    previous: bool,
    **options: Any,
) -> int:
    """Print the output of a task's programs over all its runs. For several tasks, print the name of the
    task before each line.

    With -f the command continues until the task ends, through suspensions and server restarts, and
    exits with the task's exit code. Ctrl-C stops following; the task keeps running.

    \b
    Examples:
      hai logs 12 -f                   follow rank 0
      hai logs train -r all --tail 20  the last lines of every rank
      hai logs 12 -r 0-3,7 --since 10m --grep 'loss|error'
      hai logs 12 --previous           the run before this one
      hai logs $(hai list -q --tag sweep) --grep loss
    """
    if previous and (following or options["run"]):
        raise click.UsageError("--previous goes with neither -f nor --run")
    if following and len(tasks) > 1:
        raise click.UsageError("-f follows one task, and these are several")

    async def resolve_query(client: Client, task: str = tasks[0]) -> tuple[int, LogQuery]:
        id = await client.tasks.resolve(task, kind)
        run = await _previous_run(client, id) if previous else options["run"] or 0
        if following:
            await client.tasks.get(id)  # reports errors at once; the stream would retry
        else:
            await _require_rank_and_run(client, id, run, options["ranks"])
        return id, _log_query(settings, run, options)

    async def print_once(client: Client) -> int:
        for task in tasks:
            id, query = await resolve_query(client, task)
            if len(tasks) > 1:
                query = replace(query, task=printable((await client.tasks.get(id)).name))
            if not await print_lines(client, id, query, follow=False):
                await print_wait_reason(client, id, settings)
        return 0

    if not following:
        return call_server(settings, print_once)
    return follow(settings, *call_server(settings, resolve_query))


def _log_query(settings: Settings, run: int, options: dict[str, Any]) -> LogQuery:
    return LogQuery(
        ranks=options["ranks"],
        run=run,
        tail=options["tail"] or 0,
        since=options["since"],
        grep=options["grep"],
        timestamps=options["timestamps"],
        output=settings.output,
    )


async def _require_rank_and_run(client: Client, id: int, run: int, ranks: tuple[int, ...]) -> None:
    """Raise UsageError if the rank or run does not exist. An empty log would hide the mistake."""
    if run < 2 and (not ranks or min(ranks) == 0):
        return
    task = await client.tasks.get(id)
    if run > task.run_count:
        raise click.UsageError(f"task {id} has no run {run}; it has had {task.run_count}")
    last_rank = max([task.node_count - 1, *(rank.index for rank in task.run.ranks)])
    if ranks and min(ranks) > last_rank:
        raise click.UsageError(f"task {id} has no rank {min(ranks)}; its last one is {last_rank}")


async def _previous_run(client: Client, id: int) -> int:
    current = (await client.tasks.get(id)).run_count
    if current < 2:
        raise click.ClickException(f"task {id} has no run before the current one")
    return current - 1
