"""`hai token …`: credentials. A secret is printed only once, when the token is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_users
from hai_tui.cli.output.output import dump, note, show
from hai_tui.cli.parameters import expires_option, user_option
from hai_tui.cli.settings import Settings, with_client
from hai_tui.views.accounts import TOKENS

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client
    from hai.v1.user_pb2 import Token


@click.group("token", cls=HaiGroup)
def token() -> None:
    """List, create and revoke tokens; of others, for admins."""


@token.command("list", cls=TableCommand)
@user_option
@with_client
async def list_tokens(settings: Settings, client: Client, user: str) -> None:
    """List tokens, without their secrets."""
    show(settings, TOKENS, await client.users.tokens(user))


@token.command("create", cls=HaiCommand)
@user_option
@click.option(
    "--scope", type=click.Choice(["all", "read", "submit"]), default="all", show_default=True
)
@click.option(
    "--holder",
    default="",
    shell_complete=complete_users,
    help="Who may use it to act as the user. Default: the user.",
)
@click.option("--description", default="", help="What it is for.")
@expires_option
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
    """Create a token. Its secret is printed once, to standard output; everything else goes to stderr.

    \b
    Examples:
      hai token create --scope read --expires 30d --description dashboard
      hai token create -q > robot.token
      hai token create --holder bob --scope read --expires 7d    bob acts as you
    """
    from hai.v1.user_pb2 import TokenScope

    token = await client.users.create_token(
        user=user,
        scope=TokenScope.Value(f"TOKEN_SCOPE_{scope.upper()}"),
        description=description,
        expire_time=expires,
        holder=holder,
    )
    _show_secret(settings, token)


def _show_secret(settings: Settings, token: Token) -> None:
    if settings.structured:
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(token))
        return
    owner = f"{token.user} for {token.holder}" if token.holder else token.user
    note(settings, f"token {token.id} of {owner}; this is the only time its secret is shown:")
    click.echo(token.secret)


@token.command("revoke", cls=HaiCommand)
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@with_client
async def revoke(settings: Settings, client: Client, ids: tuple[int, ...]) -> None:
    """Make tokens invalid at once."""
    show(settings, TOKENS, [await client.users.revoke_token(id) for id in ids])
