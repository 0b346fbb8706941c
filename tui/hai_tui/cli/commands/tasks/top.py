"""`hai top`: the running tasks and the queue on one page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import TableCommand
from hai_tui.cli.settings import Settings, call_server

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Group
    from hai.v1.task_pb2 import Task


@click.command("top", cls=TableCommand)
@click.option("--once", is_flag=True, help="Print the page and end.")
@click.option("--readonly", is_flag=True, help="Refuse every action that changes something.")
@click.pass_obj
def top(settings: Settings, once: bool, readonly: bool) -> int:
    """Show the cluster on one page: nodes, running tasks, and the queue in order.

    Without --once it opens the app (as `hai tui`), where the page is live.

    \b
    Examples:
      hai top --once
      hai top --once --json | jq .groups
      watch -n 10 hai top --once
    """
    if not once:
        from hai_tui.cli.commands.cluster.tui import open_app

        return open_app(settings, ("tasks", "status:unfinished"), readonly=readonly)

    async def show_page(client: Client) -> None:
        groups = await client.nodes.groups()
        queue = await client.tasks.queue()
        running = [task async for task in client.tasks.all(filter="state:running")]
        _show_page(settings, groups, running, queue)

    call_server(settings, show_page)
    return 0


def _show_page(
    settings: Settings, groups: Sequence[Group], running: Sequence[Task], queue: Sequence[Task]
) -> None:
    if settings.structured:
        _dump_page(settings, groups, running, queue)
        return
    from hai.client.tasks.silent_agents import silent_agents_of_run
    from hai_tui.cli.output.output import note_cut_queue, show
    from hai_tui.i18n import text
    from hai_tui.views.tasks import QUEUE, TASKS

    if settings.sentences:
        waiting = max(len(queue), sum(group.waiting_tasks for group in groups))
        for line in cluster_lines(groups, len(running), waiting):
            click.echo(line)
        if silent := sum(silent_agents_of_run(task.run) is not None for task in running):
            click.echo(text("top.silent", count=silent))
        click.echo()
    show(settings, TASKS, running)
    if queue:
        if settings.sentences:
            click.echo()
        show(settings, QUEUE, queue)
        note_cut_queue(settings, queue)


def cluster_lines(groups: Iterable[Group], running: int, waiting: int) -> Iterable[str]:
    """Yield a line for each group, then a line with the number of tasks."""
    for group in groups:
        allocated = group.usable_nodes - group.free_nodes
        percentage = f"{allocated / group.usable_nodes:.0%}" if group.usable_nodes else "-"
        unusable = group.nodes - group.usable_nodes
        unusable_note = f", {unusable} not usable" if unusable else ""
        yield f"{group.name}: {allocated} of {group.usable_nodes} nodes held ({percentage}){unusable_note}"
    run, wait = ("runs" if running == 1 else "run"), ("waits" if waiting == 1 else "wait")
    yield f"{running} {'task' if running == 1 else 'tasks'} {run}, {waiting} {wait}"


def _dump_page(settings: Settings, *lists: Sequence[Any]) -> None:
    """Print the page as JSON or YAML."""
    from hai_tui.cli.output.output import dump
    from hai_tui.formatting.documents import to_dict

    keys = ("groups", "running", "queue")
    page = {k: [to_dict(m) for m in messages] for k, messages in zip(keys, lists, strict=True)}
    dump(settings, page)
