"""`hai registry …`: accounts at image registries. A password comes from stdin or a prompt, never from an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_registries
from hai_tui.cli.output.output import note, show, show_one
from hai_tui.cli.prompts import read_secret
from hai_tui.cli.settings import Settings, call_server, with_client
from hai_tui.views.images import REGISTRIES

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.image_pb2 import Registry

_PREFIX = click.argument("prefix", shell_complete=complete_registries)


@click.group("registry", cls=HaiGroup)
def registry() -> None:
    """List, set and delete accounts at image registries (admins)."""


@registry.command("list", cls=TableCommand)
@with_client
async def list_registries(settings: Settings, client: Client) -> None:
    """List registries, without passwords."""
    show(settings, REGISTRIES, await client.images.registries())


@registry.command("set", cls=HaiCommand)
@_PREFIX
@click.option("--username", help="User or robot account; '' for none.")
@click.option(
    "--password", "has_password", is_flag=True, help="Ask for the password, or read stdin."
)
@click.option("--plain-http/--tls", default=None, help="Without TLS; only for your own network.")
@click.option("--pull-secret", metavar="NAME", help="Kubernetes secret that nodes pull with.")
@click.pass_obj
def set_registry(settings: Settings, /, prefix: str, has_password: bool, **changes: Any) -> int:
    """Set how the server queries the registry of images whose path begins with PREFIX.

    PREFIX is a host, host:port or host/project; the longest matching one counts.
    Options that are not given stay as they are. The password is asked for, or read
    from stdin; the server stores it and shows it to nobody.

    \b
    Examples:
      hai registry set registry.example/lab --username 'robot$lab+hai' --password
      hai registry set registry.example --pull-secret registry-login
      hai registry set localhost:5000 --plain-http
      pass show robot | hai registry set registry.example --username ci --password
    """
    password = read_secret("password") if has_password else None

    async def work(client: Client) -> int:
        found = await _find(client, prefix)
        for key, value in changes.items():
            if value is not None:
                setattr(found, key, value)
        show_one(settings, REGISTRIES, await client.images.set_registry(found, password))
        return 0

    return call_server(settings, work)


async def _find(client: Client, prefix: str) -> Registry:
    """Return the registry of the server, or a new one."""
    from hai.v1.image_pb2 import Registry

    found = (known for known in await client.images.registries() if known.prefix == prefix)
    return next(found, Registry(prefix=prefix))


@registry.command("delete", cls=HaiCommand)
@_PREFIX
@with_client
async def delete(settings: Settings, client: Client, prefix: str) -> None:
    """Delete a registry, its account and its password."""
    await client.images.delete_registry(prefix)
    note(settings, f"registry {prefix} is deleted")
