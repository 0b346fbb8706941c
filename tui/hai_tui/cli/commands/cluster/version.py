"""`hai version`: the versions of client and server, and whether they are compatible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand
from hai_tui.cli.output.output import dump
from hai_tui.cli.settings import Settings, call_server
from hai_tui.formatting.values import local

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.server_service_pb2 import ServerInfo

_PROTOCOL = "hai.v1"


def client_version() -> str:
    """Return the version of the installed distribution."""
    from importlib.metadata import version

    return version("hai-platform")


@click.command("version", cls=HaiCommand)
@click.option("--client", "only_client", is_flag=True, help="Do not ask the server.")
@click.pass_obj
def version(settings: Settings, only_client: bool) -> int:
    """Print the versions of this client, of the server, and whether they understand each other.

    Of a server with TLS also when its certificate expires.

    \b
    Examples:
      hai version
      hai version --client
    """

    async def request(client: Client) -> ServerInfo:
        return await client.server.info()

    if settings.structured:
        dump(settings, _facts(None if only_client else call_server(settings, request)))
        return 0
    click.echo(
        f"client    {client_version()} ({_PROTOCOL})"
    )  # printed first, so that it appears even if no server answers
    if not only_client:
        info = call_server(settings, request)
        click.echo(f"server    {info.version} ({info.protocol})")
        click.echo(f"cluster   {info.cluster} ({info.launcher})")
        if info.HasField("certificate_expire_time"):
            click.echo(f"tls       certificate expires {local(info.certificate_expire_time)}")
        click.echo(f"together  {_compatibility(info)}")
    return 0


def _facts(info: ServerInfo | None) -> dict[str, object]:
    from hai_tui.formatting.documents import to_dict

    facts: dict[str, object] = {"client": client_version(), "protocol": _PROTOCOL}
    if info is None:
        return facts
    compatible = info.protocol == _PROTOCOL
    return {**facts, "server": to_dict(info), "compatible": compatible}


def _compatibility(info: ServerInfo) -> str:
    """Say whether this client and the server are compatible."""
    if info.protocol == _PROTOCOL:
        same = info.version == client_version()
        return "compatible" if same else "compatible; what only one of them knows is refused"
    return f"not compatible: this client speaks {_PROTOCOL}; install the one for {info.protocol}"
