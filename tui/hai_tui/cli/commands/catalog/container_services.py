"""`hai container start|stop|restart|logs`: a container as a whole, or one service of any task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import dump, note, show
from hai_tui.cli.parameters import one_task
from hai_tui.cli.settings import Settings, call_server
from hai_tui.i18n import text
from hai_tui.views.containers import SERVICES, remarks

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind
    from hai.v1.container_pb2 import Container

    Verb = Callable[[Client, int], Awaitable[int]]

_SERVICE = click.option("--service", default="", metavar="NAME", help="Only this service.")
_RANK = click.option("-r", "--rank", type=click.IntRange(0), default=0, help="Rank of the service.")


@click.command("start", cls=HaiCommand)
@one_task
@_SERVICE
@_RANK
@click.pass_obj
def start(settings: Settings, task: str, kind: Kind, service: str, rank: int) -> int:
    """Start a container that was put away, at its old address; or one service of a task.

    \b
    Examples:
      hai container start lab
      hai container start 12 --service tensorboard
    """

    async def whole_container(client: Client, id: int) -> int:
        await client.tasks.resume(id)
        note(settings, text("container.started", id=id))
        return 0

    one = _control(settings, service, rank, "START")
    return do(settings, task, kind, one if service else whole_container)


@click.command("stop", cls=HaiCommand)
@one_task
@_SERVICE
@_RANK
@click.pass_obj
def stop(settings: Settings, task: str, kind: Kind, service: str, rank: int) -> int:
    """Put a container away: notebooks are saved, its place is given back, its files stay.

    \b
    Examples:
      hai container stop lab
      hai container stop 12 --service tensorboard     only this service
    """

    async def whole_container(client: Client, id: int) -> int:
        await client.tasks.suspend(id, hold=True)
        note(settings, text("container.stopped", id=id))
        return 0

    one = _control(settings, service, rank, "STOP")
    return do(settings, task, kind, one if service else whole_container)


@click.command("restart", cls=HaiCommand)
@one_task
@click.option("--service", default="jupyter", show_default=True, metavar="NAME", help="Which.")
@_RANK
@click.pass_obj
def restart(settings: Settings, task: str, kind: Kind, service: str, rank: int) -> int:
    """Start a service anew; the container keeps its place."""
    return do(settings, task, kind, _control(settings, service, rank, "RESTART"))


@click.command("logs", cls=HaiCommand)
@one_task
@click.argument("service", default="")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the task ends.")
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
    """Print what services of a task have printed; those of one service by its name.

    \b
    Examples:
      hai container logs lab -f
      hai container logs 12 tensorboard --tail 50
    """
    from hai_tui.cli.containers.options import service_line_pattern
    from hai_tui.cli.output.follow import LogQuery, follow, print_lines

    async def resolve(client: Client) -> tuple[int, LogQuery]:
        id = await client.tasks.resolve(task, kind)
        names = [s.name for s in (await client.containers.get(id)).services]
        line_pattern = service_line_pattern(names, service)
        return id, LogQuery(
            ranks=(rank,), tail=tail or 0, grep=line_pattern, output=settings.output
        )

    async def once(client: Client) -> int:
        await print_lines(client, *await resolve(client), follow=False)
        return 0

    return (
        follow(settings, *call_server(settings, resolve))
        if following
        else call_server(settings, once)
    )


def do(settings: Settings, task: str, kind: Kind, verb: Verb) -> int:
    """To the task that was named."""

    async def work(client: Client) -> int:
        return await verb(client, await client.tasks.resolve(task, kind))

    return call_server(settings, work)


def _control(settings: Settings, service: str, rank: int, action: str) -> Verb:
    """Of one service; it fails when the service does."""

    async def verb(client: Client, id: int) -> int:
        from hai.v1.container_pb2 import SERVICE_STATE_FAILED, ServiceAction

        line_pattern = ServiceAction.Value(f"SERVICE_ACTION_{action}")
        found = await client.containers.control(id, service, line_pattern, rank=rank)
        show_services(settings, found)
        states = [s.state for s in found.services if (s.name, s.rank) == (service, rank)]
        return int(SERVICE_STATE_FAILED in states)

    return verb


def show_services(settings: Settings, found: Container, **standing: str) -> None:
    """As a table with what is to be said of its life, or whole, with how the task stands."""
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        return dump(settings, {**to_dict(found), **standing})
    show(settings, SERVICES, found.services)
    for remark in remarks(found):
        note(settings, remark)
