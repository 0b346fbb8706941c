"""`hai port …`: ports of the nodes that lead to services of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import ports as complete_ports
from hai_tui.cli.completion import users as complete_users
from hai_tui.cli.output.output import note, show, show_one
from hai_tui.cli.settings import Settings
from hai_tui.views.containers import PORTS

if TYPE_CHECKING:
    from hai.client.client import Client

_CREATE_HELP = """Keep a port for SERVICE, a tcp service of your tasks named TASK_NAME.

It leads to whichever task of that name runs, over all its runs. How many you
may have is a right (ports:N). A run gets the ports that it finds at its start.

\b
Examples:
  hai port create serve api
  hai port create serve api --user ada --number 30022    for operators
"""

_BIND_HELP = """Let PORT lead to another service or task name of its user.

\b
Examples:
  hai port bind 30022 serve-2 api
"""

_PORT = click.argument("number", metavar="PORT", type=int, shell_complete=complete_ports)


@click.group("port", cls=HaiGroup)
def port() -> None:
    """Keep ports of the nodes for services of your tasks."""


@port.command("list", cls=TableCommand)
@click.option("--user", default="", shell_complete=complete_users, help="Default: yourself.")
@click.option("--all", "everybody", is_flag=True, help="Of everybody; for operators.")
@click.pass_obj
def list_ports(settings: Settings, user: str, everybody: bool) -> int:
    """List ports that are kept."""

    async def work(client: Client) -> int:
        show(settings, PORTS, await client.ports.list("*" if everybody else user))
        return 0

    return call(settings, work)


@port.command("create", cls=HaiCommand, help=_CREATE_HELP)
@click.argument("task_name")
@click.argument("service")
@click.option("--number", type=click.IntRange(1, 65535), help="Which; for operators.")
@click.option("--user", default="", shell_complete=complete_users, help="Default: yourself.")
@click.pass_obj
def create(settings: Settings, task_name: str, service: str, number: int | None, user: str) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        made = await client.ports.create(task_name, service, node_port=number or 0, user=user)
        show_one(settings, PORTS, made)
        return 0

    return call(settings, work)


@port.command("bind", cls=HaiCommand, help=_BIND_HELP)
@_PORT
@click.argument("task_name")
@click.argument("service")
@click.pass_obj
def bind(settings: Settings, number: int, task_name: str, service: str) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        show_one(settings, PORTS, await client.ports.bind(number, task_name, service))
        return 0

    return call(settings, work)


@port.command("delete", cls=HaiCommand)
@_PORT
@click.pass_obj
def delete(settings: Settings, number: int) -> int:
    """Give a port back; a run that has it keeps it to its end."""

    async def work(client: Client) -> int:
        await client.ports.delete(number)
        note(settings, f"port {number} is given back")
        return 0

    return call(settings, work)
