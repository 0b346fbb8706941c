"""`hai container …`: dev containers, which are tasks of type jupyter, and services of any task."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.commands.catalog.container_services import (
    logs,
    restart,
    show_services,
    start,
    stop,
)
from hai_tui.cli.completion import complete_groups
from hai_tui.cli.output.output import dump, note, show, show_one
from hai_tui.cli.parameters import many_tasks, one_task, yes_option
from hai_tui.cli.prompts import confirm
from hai_tui.cli.settings import Settings, with_client
from hai_tui.formatting.values import Priority, Span
from hai_tui.i18n import text
from hai_tui.views.containers import CONTAINERS, reason_text, status_sentence
from hai_tui.views.tasks import status

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.client.tasks.references import Kind


@click.group("container", cls=HaiGroup)
def container() -> None:
    """Dev containers: JupyterLab on the cluster."""


@container.command("create", cls=HaiCommand)
@click.argument("name", default="lab")
@click.option(
    "--kind",
    type=click.Choice(["shared", "dedicated", "spot"]),
    help="The default depends on the group.",
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
    "--lifetime", type=Span(), metavar="TIME", help="Stop it after this time, unless renewed."
)
@click.option(
    "--idle-timeout", type=Span(), metavar="TIME", help="Stop it when unused for this time."
)
@click.option(
    "--grace", type=Span(), metavar="TIME", help="Warning time before it must leave. Default: 30s."
)
@click.option(
    "--shared-in-group", is_flag=True, help="Members of your user group may open it, as you."
)
@with_client
async def create(settings: Settings, client: Client, /, name: str, **options: Any) -> None:
    """Create a dev container: JupyterLab on the cluster, with files that stay.

    A shared container takes a share of a node, in groups whose nodes are shared; a dedicated
    one takes a node; a spot one takes free resources and is suspended first. Before it is
    suspended, it is warned (--grace) and its notebooks are saved. Later it returns at the
    same address.

    \b
    Examples:
      hai container create
      hai container create nlp --gpu 1 --memory 32 --idle-timeout 2h
      hai container create big --kind spot -g a100 --workspace /work/ada
    """
    from hai.client.tasks.container_spec import ContainerOptions, container_spec
    from hai_tui.cli.submission.options import read_variables

    fields = {key: value for key, value in options.items() if key != "env" and value is not None}
    container = ContainerOptions(name=name, variables=read_variables((), options["env"]), **fields)
    task = await client.tasks.create(await container_spec(client.nodes, container))
    if settings.sentences:
        click.echo(text("submitted", id=task.id, name=task.name))
        note(settings, text("container.next", id=task.id))
    else:
        show_one(settings, CONTAINERS, task)


@container.command("list", cls=TableCommand)
@click.option("-a", "--all", "everything", is_flag=True, help="Also those that have ended.")
@with_client
async def list_containers(settings: Settings, client: Client, everything: bool) -> None:
    """List dev containers."""
    from hai.v1.task_service_pb2 import TASK_VIEW_FULL

    filter = "type:jupyter" + ("" if everything else " state:waiting_init,running,suspended")
    page = await client.tasks.list(filter=filter, page_size=200, view=TASK_VIEW_FULL)
    show(settings, CONTAINERS, page.tasks)


@container.command("show", cls=TableCommand)
@one_task
@with_client
async def show_container(settings: Settings, client: Client, task: str, kind: Kind) -> None:
    """Show the services of a task, and how long it may stay."""
    id = await client.tasks.resolve(task, kind)
    services, row = await client.containers.get(id), await client.tasks.get(id)
    show_services(settings, services, status=status(row), why=reason_text(row))
    if settings.sentences and (sentence := status_sentence(row)):
        note(settings, sentence)


@container.command("open", cls=HaiCommand)
@one_task
@click.argument("service", default="")
@click.option("--browser", is_flag=True, help="Open it here.")
@with_client
async def open_container(
    settings: Settings, client: Client, task: str, kind: Kind, service: str, browser: bool
) -> None:
    """Print a link that opens a container, or another http service of a task, in a browser.

    The link works once, within a minute; the browser then stays signed in. While the container
    waits, the page shows why, and opens the container when it runs.

    \b
    Examples:
      hai container open lab
      hai container open lab --browser
      hai container open 12 tensorboard
    """
    links = await client.containers.open(await client.tasks.resolve(task, kind), service)
    if settings.json:
        dump(settings, {"link": links.link, "url": links.url})
    elif not browser:
        click.echo(links.link)
    if browser:
        click.launch(links.link)


@container.command("renew", cls=HaiCommand)
@one_task
@with_client
async def renew(settings: Settings, client: Client, task: str, kind: Kind) -> None:
    """Restart the lifetime of a container."""
    id = await client.tasks.resolve(task, kind)
    show_services(settings, await client.containers.renew(id))


@container.command("delete", cls=HaiCommand)
@many_tasks
@click.option("--keep-files", is_flag=True, help="Keep their directories.")
@yes_option
@with_client
async def delete(
    settings: Settings,
    client: Client,
    tasks: tuple[str, ...],
    kind: Kind,
    keep_files: bool,
    yes: bool,
) -> int:
    """Delete containers and their files."""
    ids = [await client.tasks.resolve(task, kind) for task in tasks]
    if not yes and not keep_files and not _confirm_removal(ids):
        note(settings, text("confirm.no"))
        return 1
    for id in ids:
        await client.containers.delete(id, keep_files=keep_files)
        note(settings, text("container.deleted", id=id))
    return 0


def _confirm_removal(ids: Sequence[int]) -> bool:
    """Ask at a terminal. Elsewhere raise UsageError, because --yes is missing."""
    if not sys.stdin.isatty():
        raise click.UsageError("this removes files; give --yes, or --keep-files")
    return confirm(text("container.confirm", ids=", ".join(map(str, ids))))


for _command in (start, stop, restart, logs):
    container.add_command(_command)
