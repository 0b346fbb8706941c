"""`hai token …`: credentials. A secret is printed once, when it is made, and never again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_users
from hai_tui.cli.output.output import dump, note, show
from hai_tui.cli.parameters import parse_future
from hai_tui.cli.settings import Settings, with_client
from hai_tui.views.accounts import TOKENS

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client
    from hai.v1.user_pb2 import Token

_USER = click.option("--user", default="", shell_complete=complete_users, help="Default: yourself.")


@click.group("token", cls=HaiGroup)
def token() -> None:
    """List, create and revoke tokens; of others, for admins."""


@token.command("list", cls=TableCommand)
@_USER
@with_client
async def list_tokens(settings: Settings, client: Client, user: str) -> None:
    """List tokens, without their secrets."""
    show(settings, TOKENS, await client.users.tokens(user))


@token.command("create", cls=HaiCommand)
@_USER
@click.option(
    "--scope", type=click.Choice(["all", "read", "submit"]), default="all", show_default=True
)
@click.option(
    "--holder",
    default="",
    shell_complete=complete_users,
    help="Who gets it, to act as the user. Default: the user.",
)
@click.option("--description", default="", help="What it is for.")
@click.option(
    "--expires", metavar="TIME", callback=parse_future, help="30d, or 2026-12-31. Default: never."
)
@with_client
async def create(
    settings: Settings,
    client: Client,
    /,
    user: str,
    scope: str,
    holder: str,
    description: str,
    expires: datetime | None,
) -> None:
    """Make a token. Its secret goes to standard output, once; everything else to stderr.

    \b
    Examples:
      hai token create --scope read --expires 30d --description dashboard
      hai token create -q > robot.token
      hai token create --holder bob --scope read --expires 7d    bob acts as you
    """
    from hai.v1.user_pb2 import TokenScope

    made = await client.users.create_token(
        user=user,
        scope=TokenScope.Value(f"TOKEN_SCOPE_{scope.upper()}"),
        description=description,
        expire_time=expires,
        holder=holder,
    )
    _show_secret(settings, made)


def _show_secret(settings: Settings, made: Token) -> None:
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(made))
        return
    whose = f"{made.user} for {made.holder}" if made.holder else made.user
    note(settings, f"token {made.id} of {whose}; this is the only time its secret is shown:")
    click.echo(made.secret)


@token.command("revoke", cls=HaiCommand)
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@with_client
async def revoke(settings: Settings, client: Client, ids: tuple[int, ...]) -> None:
    """Make tokens invalid at once."""
    show(settings, TOKENS, [await client.users.revoke_token(id) for id in ids])
