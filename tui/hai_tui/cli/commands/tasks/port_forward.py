"""`hai port-forward`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import note
from hai_tui.cli.settings import Settings
from hai_tui.cli.task_argument import one_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hai.client.client import Client
    from hai.client.errors import HaiError
    from hai_tui.cli.containers.forwarding import Forward

_HELP = """Let ports of this machine lead to ports, or services, of a rank, until Ctrl-C.

While the task waits, connections fail; when it runs again they succeed again. A port on which
nothing listens yet is told.
Whoever can reach the local port is let in as you.

\b
Examples:
  hai port-forward 12 6006             localhost:6006 is port 6006 of rank 0
  hai port-forward 12 8000:6006 5005 -r 1
  hai port-forward lab 8888:jupyter    a service, whatever it listens on
"""


@click.command("port-forward", cls=HaiCommand, help=_HELP)
@one_task
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True)
@click.option(
    "-r", "--rank", type=click.IntRange(0), default=0, show_default=True, help="Which rank."
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen here.")
@click.pass_obj
def port_forward(
    settings: Settings, task: str, kind: Any, ports: tuple[str, ...], rank: int, address: str
) -> int:
    """The function behind the command."""
    from hai_tui.cli.containers import forwarding
    from hai_tui.cli.errors import print_error

    forwards = [forwarding.parse(text) for text in ports]

    def failed(error: HaiError) -> None:
        print_error(error, as_json=settings.json)

    async def work(client: Client) -> int:
        id = await client.tasks.resolve(task, kind)
        await _running(client, id, rank, forwards)

        def listening(forward: Forward, port: int) -> None:
            _say(settings, address, port, rank, forward)

        await forwarding.serve(client, id, rank, address, forwards, listening, failed)
        return 0

    return call(settings, work)


async def _running(client: Client, id: int, rank: int, forwards: Sequence[Forward]) -> None:
    """What can never work is said at once."""
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
            known = ", ".join(names) or "none"
            raise click.UsageError(f"task {id} has no service {forward.service}; it has: {known}")


def _say(settings: Settings, address: str, port: int, rank: int, forward: Forward) -> None:
    if settings.json:
        import json

        facts = {"address": address, "port": port, "rank": rank, "to": forward.remote}
        click.echo(json.dumps(facts))
    else:
        note(settings, f"{address}:{port} leads to {forward.remote} of rank {rank}")
