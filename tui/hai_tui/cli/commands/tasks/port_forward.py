"""`hai port-forward`: ports of this machine that lead to a rank of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import note
from hai_tui.cli.parameters import one_task, rank_option
from hai_tui.cli.settings import Settings, with_client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hai.client.client import Client
    from hai.client.errors import HaiError
    from hai.client.tasks.references import Kind
    from hai_tui.cli.tunnels.forwarding import Forward


@click.command("port-forward", cls=HaiCommand)
@one_task
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True)
@rank_option
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen here.")
@with_client
async def port_forward(
    settings: Settings,
    client: Client,
    task: str,
    kind: Kind,
    ports: tuple[str, ...],
    rank: int,
    address: str,
) -> None:
    """Forward ports of this machine to ports or services of a rank, until Ctrl-C.

    While the task waits, connections fail; when it runs again, they succeed. The command warns
    about ports on which nothing listens yet. Anyone who can reach the local port acts as you.

    \b
    Examples:
      hai port-forward 12 6006             localhost:6006 is port 6006 of rank 0
      hai port-forward 12 8000:6006 5005 -r 1
      hai port-forward lab 8888:jupyter    a service, whatever it listens on
    """
    from hai_tui.cli.errors import print_error
    from hai_tui.cli.tunnels import forwarding

    forwards = [forwarding.parse(text) for text in ports]

    def print_failure(error: HaiError) -> None:
        print_error(error, as_json=settings.json)

    id = await client.tasks.resolve(task, kind)
    await _require_forwardable(client, id, rank, forwards)

    def report_listening(forward: Forward, port: int) -> None:
        _report_forward(settings, address, port, rank, forward)

    await forwarding.forward_ports(
        client, id, rank, address, forwards, report_listening, print_failure
    )


async def _require_forwardable(
    client: Client, id: int, rank: int, forwards: Sequence[Forward]
) -> None:
    """Raise an error if forwarding can never work: the task is finished, or has no such rank or service."""
    from hai.v1.task_pb2 import TASK_STATE_FINISHED

    task = await client.tasks.get(id)
    if task.state == TASK_STATE_FINISHED:
        raise click.ClickException(f"task {id} is finished")
    if rank >= task.node_count:
        raise click.UsageError(
            f"task {id} has no rank {rank}; its last one is {task.node_count - 1}"
        )
    names = [service.name for service in task.spec.services]
    for forward in forwards:
        if forward.service and forward.service not in names:
            available = ", ".join(names) or "none"
            raise click.UsageError(
                f"task {id} has no service {forward.service}; it has: {available}"
            )


def _report_forward(
    settings: Settings, address: str, port: int, rank: int, forward: Forward
) -> None:
    if settings.json:
        import json

        facts = {"address": address, "port": port, "rank": rank, "to": forward.remote}
        click.echo(json.dumps(facts))
    else:
        note(settings, f"{address}:{port} leads to {forward.remote} of rank {rank}")
