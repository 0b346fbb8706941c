"""`hai usage`: what the ranks of a task, or the cluster, used over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import TableCommand
from hai_tui.cli.completion import complete_tasks
from hai_tui.cli.parameters import (
    group_filter,
    parse_ranks,
    since_option,
    task_kind_option,
    until_option,
)
from hai_tui.cli.settings import Settings, with_client

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind
    from hai_tui.formatting.table import View


@click.command("usage", cls=TableCommand)
@click.argument("task", metavar="[TASK]", required=False, shell_complete=complete_tasks)
@task_kind_option
@click.option(
    "-r", "--rank", "numbers", callback=parse_ranks, default="all", help="all, 0, 0-3 or 0-3,7."
)
@click.option("--sum", "together", is_flag=True, help="All these ranks together.")
@group_filter
@since_option
@until_option
@click.option(
    "--points",
    type=click.IntRange(2, 500),
    default=60,
    show_default=True,
    help="At most so many steps.",
)
@with_client
async def usage(
    settings: Settings,
    client: Client,
    /,
    task: str | None,
    kind: Kind,
    numbers: tuple[int, ...],
    together: bool,
    group: str,
    **when: Any,
) -> None:
    """Show the CPUs, memory and GPUs that the ranks of a task use over time; without TASK, how busy the cluster is.

    Each block is a step; a blank was not measured. Steps of one minute are stored for 3 hours,
    steps of 10 minutes for 3 days, steps of 2 hours for as long as the task.

    \b
    Examples:
      hai usage 12                     since it was started
      hai usage train -r 0-3 --since 1h
      hai usage 12 --sum               all ranks together
      hai usage 12 --points 500 --json | jq '.ranks[0].points[].cpus'
      hai usage                        the cluster, the last 3 hours
      hai usage -g default --since 7d
    """
    if task is not None and group:
        raise click.UsageError("--group is for the cluster, TASK for one task: give one of them")
    if task is None and (numbers or together):
        raise click.UsageError("--rank and --sum need a TASK")
    options = {"start": when["since"], "end": when["until"], "points": when["points"]}

    from hai_tui.usage.series import cluster_series, rank_series
    from hai_tui.views.usage import CLUSTER, RANKS

    if task is None:
        cluster = await client.usage.of_cluster(group, **options)
        _show(settings, cluster, CLUSTER, list(cluster_series(cluster)) if cluster.points else [])
    else:
        id = await client.tasks.resolve(task, kind)
        usage = await client.usage.of_task(id, ranks=numbers, sum=together, **options)
        _show(settings, usage, RANKS, rank_series(usage))


def _show(settings: Settings, response: Any, view: View, series: list[Any]) -> None:
    from hai_tui.cli.output.output import dump_message, note, show
    from hai_tui.views.usage import usage_heading

    if settings.structured:
        dump_message(settings, response)
        return
    if series and settings.headers:
        note(settings, usage_heading(response))
    show(settings, view, series)
