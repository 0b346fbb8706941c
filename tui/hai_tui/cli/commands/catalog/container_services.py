"""`hai container start|stop|restart|logs`: commands on a container as a whole, or on one service of any task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import dump, note, show
from hai_tui.cli.parameters import one_task
from hai_tui.cli.settings import Settings, call_server, with_client
from hai_tui.i18n import text
from hai_tui.views.containers import SERVICES, lifetime_sentences

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind
    from hai.v1.container_pb2 import Container

_SERVICE = click.option("--service", default="", metavar="NAME", help="Only this service.")
_RANK = click.option("-r", "--rank", type=click.IntRange(0), default=0, help="Rank of the service.")


@click.command("start", cls=HaiCommand)
@one_task
@_SERVICE
@_RANK
@with_client
async def start(
    settings: Settings, client: Client, task: str, kind: Kind, service: str, rank: int
) -> int:
    """Start a stopped container at its old address, or one service of a task.

    \b
    Examples:
      hai container start lab
      hai container start 12 --service tensorboard
    """
    id = await client.tasks.resolve(task, kind)
    if service:
        return await _control_service(settings, client, id, service, rank, "START")
    await client.tasks.resume(id)
    note(settings, text("container.started", id=id))
    return 0


@click.command("stop", cls=HaiCommand)
@one_task
@_SERVICE
@_RANK
@with_client
async def stop(
    settings: Settings, client: Client, task: str, kind: Kind, service: str, rank: int
) -> int:
    """Stop a container: notebooks are saved, its nodes become free, its files are kept.

    \b
    Examples:
      hai container stop lab
      hai container stop 12 --service tensorboard     only this service
    """
    id = await client.tasks.resolve(task, kind)
    if service:
        return await _control_service(settings, client, id, service, rank, "STOP")
    await client.tasks.suspend(id, hold=True)
    note(settings, text("container.stopped", id=id))
    return 0


@click.command("restart", cls=HaiCommand)
@one_task
@click.option("--service", default="jupyter", show_default=True, metavar="NAME", help="Which.")
@_RANK
@with_client
async def restart(
    settings: Settings, client: Client, task: str, kind: Kind, service: str, rank: int
) -> int:
    """Restart a service; the container keeps its node."""
    id = await client.tasks.resolve(task, kind)
    return await _control_service(settings, client, id, service, rank, "RESTART")


async def _control_service(
    settings: Settings, client: Client, id: int, service: str, rank: int, action: str
) -> int:
    """Start, stop or restart a service. Return 1 if the service has failed then."""
    from hai.v1.container_pb2 import SERVICE_STATE_FAILED, ServiceAction

    container = await client.containers.control(
        id, service, ServiceAction.Value(f"SERVICE_ACTION_{action}"), rank=rank
    )
    show_services(settings, container)
    states = [s.state for s in container.services if (s.name, s.rank) == (service, rank)]
    return int(SERVICE_STATE_FAILED in states)


@click.command("logs", cls=HaiCommand)
@one_task
@click.argument("service", default="")
@click.option(
    "-f", "--follow", "following", is_flag=True, help="Print new lines until the task ends."
)
@click.option("--tail", type=click.IntRange(1), metavar="N", default=None, help="Last lines only.")
@_RANK
@click.pass_obj
def logs(
    settings: Settings,
    task: str,
    kind: Kind,
    service: str,
    following: bool,
    tail: int | None,
    rank: int,
) -> int:
    """Print what the services of a task have printed, or one service of that name.

    \b
    Examples:
      hai container logs lab -f
      hai container logs 12 tensorboard --tail 50
    """
    from hai_tui.cli.output.follow import LogQuery, follow, print_lines

    async def resolve_query(client: Client) -> tuple[int, LogQuery]:
        id = await client.tasks.resolve(task, kind)
        names = [s.name for s in (await client.containers.get(id)).services]
        pattern = service_line_pattern(names, service)
        return id, LogQuery(ranks=(rank,), tail=tail or 0, grep=pattern, output=settings.output)

    async def print_once(client: Client) -> int:
        await print_lines(client, *await resolve_query(client), follow=False)
        return 0

    if following:
        return follow(settings, *call_server(settings, resolve_query))
    return call_server(settings, print_once)


def service_line_pattern(names: Sequence[str], service: str) -> re.Pattern[str]:
    """Return a pattern for the log lines of one service, or of all. Such a line begins with `[SERVICE]`."""
    if service and service not in names:
        available = ", ".join(names) or "none"
        raise click.UsageError(f"there is no service {service!r}; available: {available}")
    candidates = [service] if service else names
    return re.compile(rf"^\[(?:{'|'.join(map(re.escape, candidates))})\] ")


def show_services(settings: Settings, container: Container, **more: str) -> None:
    """Print a table of services and remarks about the container; or all its fields as JSON or YAML, with `more`."""
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        return dump(settings, {**to_dict(container), **more})
    show(settings, SERVICES, container.services)
    for remark in lifetime_sentences(container):
        note(settings, remark)
