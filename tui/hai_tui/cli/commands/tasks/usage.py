"""`hai usage`: what the ranks of a task, or the cluster, used over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import TableCommand
from hai_tui.cli.completion import groups as complete_groups
from hai_tui.cli.completion import tasks as complete_tasks
from hai_tui.cli.settings import Settings
from hai_tui.cli.task_argument import kind_of_task
from hai_tui.cli.time_options import before_now
from hai_tui.formatting.values import ranks

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.usage_service_pb2 import ListClusterUsageResponse, ListTaskUsageResponse

_HELP = """Show what the ranks of a task use of CPUs, memory and GPUs over time; without TASK, how busy the cluster is.

Each block is a step; a blank is one without a measurement. Minutes are kept for 3 hours, 10
minutes for 3 days, 2 hours for as long as the task.

\b
Examples:
  hai usage 12                     since it was started
  hai usage train -r 0-3 --since 1h
  hai usage 12 --sum               all ranks together
  hai usage 12 --points 500 --json | jq '.ranks[0].points[].cpus'
  hai usage                        the cluster, the last 3 hours
  hai usage -g default --since 7d
"""


def _ranks(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    return ranks(value)


@click.command("usage", cls=TableCommand, help=_HELP)
@click.argument("task", metavar="[TASK]", required=False, shell_complete=complete_tasks)
@kind_of_task
@click.option(
    "-r", "--rank", "numbers", callback=_ranks, default="all", help="all, 0, 0-3 or 0-3,7."
)
@click.option("--sum", "together", is_flag=True, help="These ranks together, not each.")
@click.option("-g", "--group", default="", shell_complete=complete_groups, help="One node group.")
@click.option("--since", metavar="TIME", callback=before_now, help="10m, 2h, or 2026-11-21T11:08.")
@click.option(
    "--until", metavar="TIME", callback=before_now, help="10m (ago), or 2026-11-21T11:08."
)
@click.option(
    "--points",
    type=click.IntRange(2, 500),
    default=60,
    show_default=True,
    help="At most so many steps.",
)
@click.pass_obj
def usage(
    settings: Settings,
    /,
    task: str | None,
    kind: Any,
    numbers: tuple[int, ...],
    together: bool,
    group: str,
    **when: Any,
) -> int:
    """The function behind the command."""
    if task is not None and group:
        raise click.UsageError("--group is for the cluster, TASK for one task: give one of them")
    if task is None and (numbers or together):
        raise click.UsageError("--rank and --sum need a TASK")
    options = {"start": when["since"], "end": when["until"], "points": when["points"]}

    async def work(client: Client) -> int:
        if task is None:
            _show_cluster(settings, await client.usage.of_cluster(group, **options))
        else:
            id = await client.tasks.resolve(task, kind)
            found = await client.usage.of_task(id, ranks=numbers, sum=together, **options)
            _show_task(settings, found)
        return 0

    return call(settings, work)


def _show_task(settings: Settings, answer: ListTaskUsageResponse) -> None:
    if _structured(settings, answer):
        return
    from hai_tui.usage.series import rank_series
    from hai_tui.views.usage import RANKS

    _show(settings, answer, RANKS, rank_series(answer))


def _show_cluster(settings: Settings, answer: ListClusterUsageResponse) -> None:
    if _structured(settings, answer):
        return
    from hai_tui.usage.series import cluster_series
    from hai_tui.views.usage import CLUSTER

    _show(settings, answer, CLUSTER, list(cluster_series(answer)) if answer.points else [])


def _structured(settings: Settings, answer: Any) -> bool:
    if settings.output not in ("json", "yaml"):
        return False
    from hai_tui.cli.output.output import dump
    from hai_tui.formatting.documents import to_dict

    dump(settings, to_dict(answer))
    return True


def _show(settings: Settings, answer: Any, view: Any, series: list[Any]) -> None:
    from hai_tui.cli.output.output import note, show
    from hai_tui.views.usage import heading

    if series and settings.headers:
        note(settings, heading(answer))
    show(settings, view, series)
