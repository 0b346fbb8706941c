"""`hai container …`: dev containers, which are tasks of type jupyter, and services of any task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.complete import groups as complete_groups
from hai_tui.cli.container_view import CONTAINERS, SERVICES, remarks
from hai_tui.cli.human import Priority, Span
from hai_tui.cli.reference import many_tasks, one_task
from hai_tui.cli.session import call
from hai_tui.cli.settings import Settings
from hai_tui.cli.show import dump, note, show, show_one
from hai_tui.cli.texts import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.container_pb2 import Container

_CREATE_HELP = """Create a dev container: JupyterLab on the cluster, with files that stay.

shared takes a share of a node, in groups whose nodes are shared; dedicated takes a node;
spot takes what is free and leaves first. When it has to leave, it is told in advance
(--grace), its notebooks are saved, and it returns at the same address.

\b
Examples:
  hai container create
  hai container create nlp --gpu 1 --memory 32 --idle-timeout 2h
  hai container create big --kind spot -g a100 --workspace /work/ada
"""

_OPEN_HELP = """Print a link that opens a container, or another http service of a task, in a browser.

The link works once, within a minute; the browser then stays signed in. While the container
waits, the page says why and when, and becomes the container when it is there.

\b
Examples:
  hai container open lab
  hai container open lab --browser
  hai container open 12 tensorboard
"""

_START_HELP = """Start a container that was put away, at its old address; or one service of a task.

\b
Examples:
  hai container start lab
  hai container start 12 --service tensorboard
"""

_STOP_HELP = """Put a container away: notebooks are saved, its place is given back, its files stay.

\b
Examples:
  hai container stop lab
  hai container stop 12 --service tensorboard     only this service
"""

_LOGS_HELP = """Print what services of a task have printed; those of one service by its name.

\b
Examples:
  hai container logs lab -f
  hai container logs 12 tensorboard --tail 50
"""

_SERVICE = click.option("--service", default="", metavar="NAME", help="Only this service.")
_RANK = click.option("-r", "--rank", type=click.IntRange(0), default=0, help="Rank of the service.")
_LEAST_SECONDS = 1.0


@click.group("container", cls=HaiGroup)
def container() -> None:
    """Dev containers: JupyterLab on the cluster."""


@container.command("create", cls=HaiCommand, help=_CREATE_HELP)
@click.argument("name", default="lab")
@click.option(
    "--kind",
    type=click.Choice(["shared", "dedicated", "spot"]),
    help="Default: as its group is.",
)
@click.option("--gpu", type=click.IntRange(0), default=0, help="GPUs of a share.")
@click.option("--cpu", type=click.IntRange(0), default=0, help="CPUs of a share. Default: 2.")
@click.option("--memory", type=click.IntRange(0), default=0, metavar="GB", help="Default: 4.")
@click.option(
    "-g", "--group", default="", shell_complete=complete_groups, help="Node group, or group#zone."
)
@click.option("-p", "--priority", type=Priority(), help="A level such as HIGH, or its number.")
@click.option("-i", "--image", default="", help="Image name or registry path.")
@click.option("--py-venv", default="", metavar="NAME", help="Environment made by haienv.")
@click.option("-e", "--env", multiple=True, metavar="K[=V]", help="A variable. Repeatable.")
@click.option(
    "--workspace", default="", metavar="DIR", help="Where to work. Default: a directory of its own."
)
@click.option(
    "--lifetime", type=Span(), metavar="TIME", help="Put away after so long, unless renewed."
)
@click.option(
    "--idle-timeout", type=Span(), metavar="TIME", help="Put away when nobody uses it for so long."
)
@click.option(
    "--grace", type=Span(), metavar="TIME", help="Warning before it has to leave. Default: 30s."
)
@click.option(
    "--shared-in-group", is_flag=True, help="Members of your user group may open it, as you."
)
@click.pass_obj
def create(settings: Settings, /, name: str, **options: Any) -> int:
    """The function behind the command."""
    from hai_tui.cli.containing import spec_of, with_kind

    async def work(client: Client) -> int:
        spec = await with_kind(client, spec_of(name, options), options)
        task = await client.tasks.create(spec)
        if settings.sentences:
            click.echo(text("submitted", id=task.id, name=task.name))
            note(settings, text("container.next", id=task.id))
        else:
            show_one(settings, CONTAINERS, task)
        return 0

    return call(settings, work)


@container.command("list", cls=TableCommand)
@click.option("-a", "--all", "everything", is_flag=True, help="Also those that have ended.")
@click.pass_obj
def list_containers(settings: Settings, everything: bool) -> int:
    """List dev containers."""
    from hai.v1.task_service_pb2 import TASK_VIEW_FULL

    wanted = "type:jupyter" + ("" if everything else " state:waiting_init,running,suspended")

    async def work(client: Client) -> int:
        page = await client.tasks.list(filter=wanted, page_size=200, view=TASK_VIEW_FULL)
        show(settings, CONTAINERS, page.tasks)
        return 0

    return call(settings, work)


@container.command("show", cls=TableCommand)
@one_task
@click.pass_obj
def show_container(settings: Settings, task: str, kind: Any) -> int:
    """Show the services of a task, and how long it may stay."""

    async def work(client: Client) -> int:
        _show(settings, await client.containers.get(await client.tasks.resolve(task, kind)))
        return 0

    return call(settings, work)


@container.command("open", cls=HaiCommand, help=_OPEN_HELP)
@one_task
@click.argument("service", default="")
@click.option("--browser", is_flag=True, help="Open it here.")
@click.pass_obj
def open_container(settings: Settings, task: str, kind: Any, service: str, browser: bool) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        answer = await client.containers.open(await client.tasks.resolve(task, kind), service)
        if settings.json:
            dump(settings, {"link": answer.link, "url": answer.url})
        elif not browser:
            click.echo(answer.link)
        if browser:
            click.launch(answer.link)
        return 0

    return call(settings, work)


@container.command("start", cls=HaiCommand, help=_START_HELP)
@one_task
@_SERVICE
@_RANK
@click.pass_obj
def start(settings: Settings, task: str, kind: Any, service: str, rank: int) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        id = await client.tasks.resolve(task, kind)
        if service:
            return await _control(client, settings, id, service, rank, "START")
        note(settings, text("container.started", id=(await client.tasks.resume(id)).id))
        return 0

    return call(settings, work)


@container.command("stop", cls=HaiCommand, help=_STOP_HELP)
@one_task
@_SERVICE
@_RANK
@click.pass_obj
def stop(settings: Settings, task: str, kind: Any, service: str, rank: int) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        id = await client.tasks.resolve(task, kind)
        if service:
            return await _control(client, settings, id, service, rank, "STOP")
        await client.tasks.suspend(id, hold=True)
        note(settings, text("container.stopped", id=id))
        return 0

    return call(settings, work)


@container.command("restart", cls=HaiCommand)
@one_task
@click.option("--service", default="jupyter", show_default=True, metavar="NAME", help="Which.")
@_RANK
@click.pass_obj
def restart(settings: Settings, task: str, kind: Any, service: str, rank: int) -> int:
    """Start a service anew; the container keeps its place."""

    async def work(client: Client) -> int:
        id = await client.tasks.resolve(task, kind)
        return await _control(client, settings, id, service, rank, "RESTART")

    return call(settings, work)


@container.command("logs", cls=HaiCommand, help=_LOGS_HELP)
@one_task
@click.argument("service", default="")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the task ends.")
@click.option("--tail", type=click.IntRange(1), metavar="N", default=None, help="Last lines only.")
@_RANK
@click.pass_obj
def logs(
    settings: Settings,
    task: str,
    kind: Any,
    service: str,
    following: bool,
    tail: int | None,
    rank: int,
) -> int:
    """The function behind the command."""
    from hai_tui.cli.containing import printed_by
    from hai_tui.cli.follow import Lines, follow, print_lines

    async def resolve(client: Client) -> tuple[int, Lines]:
        id = await client.tasks.resolve(task, kind)
        names = [s.name for s in (await client.containers.get(id)).services]
        wanted = printed_by(names, service)
        return id, Lines(ranks=(rank,), tail=tail or 0, grep=wanted, output=settings.output)

    async def once(client: Client) -> int:
        await print_lines(client, *await resolve(client), follow=False)
        return 0

    return follow(settings, *call(settings, resolve)) if following else call(settings, once)


@container.command("renew", cls=HaiCommand)
@one_task
@click.pass_obj
def renew(settings: Settings, task: str, kind: Any) -> int:
    """Let a container's lifetime begin anew."""

    async def work(client: Client) -> int:
        _show(settings, await client.containers.renew(await client.tasks.resolve(task, kind)))
        return 0

    return call(settings, work)


@container.command("delete", cls=HaiCommand)
@many_tasks
@click.option("--keep-files", is_flag=True, help="Let their directories stay.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing.")
@click.pass_obj
def delete(
    settings: Settings, tasks: tuple[str, ...], kind: Any, keep_files: bool, yes: bool
) -> int:
    """End containers for good, and remove their files."""
    from hai_tui.cli.containing import agreed

    async def work(client: Client) -> int:
        ids = [await client.tasks.resolve(task, kind) for task in tasks]
        if not yes and not keep_files and not agreed(ids):
            note(settings, text("confirm.no"))
            return 1
        for id in ids:
            await client.containers.delete(id, keep_files=keep_files)
            note(settings, text("container.deleted", id=id))
        return 0

    return call(settings, work)


async def _control(
    client: Client, settings: Settings, id: int, service: str, rank: int, action: str
) -> int:
    from hai.v1.container_pb2 import SERVICE_STATE_FAILED, ServiceAction

    wanted = ServiceAction.Value(f"SERVICE_ACTION_{action}")
    found = await client.containers.control(id, service, wanted, rank=rank)
    _show(settings, found)
    states = [s.state for s in found.services if (s.name, s.rank) == (service, rank)]
    return int(SERVICE_STATE_FAILED in states)


def _show(settings: Settings, found: Container) -> None:
    if settings.output in ("json", "yaml"):
        from hai_tui.cli.messages import to_dict

        return dump(settings, to_dict(found))
    show(settings, SERVICES, found.services)
    for remark in remarks(found):
        note(settings, remark)
