"""`hai port …`: ports of the nodes that lead to services of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_ports
from hai_tui.cli.output.output import note, show, show_one
from hai_tui.cli.parameters import user_option
from hai_tui.cli.settings import Settings, with_client
from hai_tui.views.containers import PORTS

if TYPE_CHECKING:
    from hai.client.client import Client

_PORT = click.argument("number", metavar="PORT", type=int, shell_complete=complete_ports)


@click.group("port", cls=HaiGroup)
def port() -> None:
    """Reserve ports of the nodes for services of your tasks."""


@port.command("list", cls=TableCommand)
@user_option
@click.option("--all", "everybody", is_flag=True, help="Of everybody; for operators.")
@with_client
async def list_ports(settings: Settings, client: Client, user: str, everybody: bool) -> None:
    """List reserved ports."""
    show(settings, PORTS, await client.ports.list("*" if everybody else user))


@port.command("create", cls=HaiCommand)
@click.argument("task_name")
@click.argument("service")
@click.option("--number", type=click.IntRange(1, 65535), help="Port number; for operators.")
@user_option
@with_client
async def create(
    settings: Settings, client: Client, task_name: str, service: str, number: int | None, user: str
) -> None:
    """Reserve a port for SERVICE, a tcp service of your tasks named TASK_NAME.

    It leads to the running task of that name, over all its runs. The right ports:N
    limits how many you may have. A run gets the ports that exist when it starts.

    \b
    Examples:
      hai port create serve api
      hai port create serve api --user ada --number 30022    for operators
    """
    made = await client.ports.create(task_name, service, node_port=number or 0, user=user)
    show_one(settings, PORTS, made)


@port.command("bind", cls=HaiCommand)
@_PORT
@click.argument("task_name")
@click.argument("service")
@with_client
async def bind(
    settings: Settings, client: Client, number: int, task_name: str, service: str
) -> None:
    """Let PORT lead to another service or task name of its user.

    \b
    Examples:
      hai port bind 30022 serve-2 api
    """
    show_one(settings, PORTS, await client.ports.bind(number, task_name, service))


@port.command("delete", cls=HaiCommand)
@_PORT
@with_client
async def delete(settings: Settings, client: Client, number: int) -> None:
    """Release a port; a run that uses it keeps it until it ends."""
    await client.ports.delete(number)
    note(settings, f"port {number} is released")
