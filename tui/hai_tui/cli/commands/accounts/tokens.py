"""`hai token …`: credentials. A secret is printed once, when it is made, and never again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import users as complete_users
from hai_tui.cli.output.output import dump, note, show
from hai_tui.cli.settings import Settings
from hai_tui.cli.time_options import after_now
from hai_tui.views.accounts import TOKENS

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client
    from hai.v1.user_pb2 import Token

_USER = click.option("--user", default="", shell_complete=complete_users, help="Default: yourself.")

_CREATE_HELP = """Make a token. Its secret goes to standard output, once; everything else to stderr.

\b
Examples:
  hai token create --scope read --expires 30d --description dashboard
  hai token create -q > robot.token
  hai token create --holder bob --scope read --expires 7d    bob acts as you
"""


@click.group("token", cls=HaiGroup)
def token() -> None:
    """List, create and revoke tokens; of others, for admins."""


@token.command("list", cls=TableCommand)
@_USER
@click.pass_obj
def list_tokens(settings: Settings, user: str) -> int:
    """List tokens, without their secrets."""

    async def work(client: Client) -> int:
        show(settings, TOKENS, await client.users.tokens(user))
        return 0

    return call(settings, work)


@token.command("create", cls=HaiCommand, help=_CREATE_HELP)
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
    "--expires", metavar="TIME", callback=after_now, help="30d, or 2026-12-31. Default: never."
)
@click.pass_obj
def create(
    settings: Settings,
    /,
    user: str,
    scope: str,
    holder: str,
    description: str,
    expires: datetime | None,
) -> int:
    """The function behind the command."""
    from hai.v1.user_pb2 import TokenScope

    async def work(client: Client) -> int:
        made = await client.users.create_token(
            user=user,
            scope=TokenScope.Value(f"TOKEN_SCOPE_{scope.upper()}"),
            description=description,
            expire_time=expires,
            holder=holder,
        )
        _show_secret(settings, made)
        return 0

    return call(settings, work)


def _show_secret(settings: Settings, made: Token) -> None:
    if settings.output in ("json", "yaml"):
        from hai_tui.formatting.documents import to_dict

        dump(settings, to_dict(made))
        return
    whose = f"{made.user} for {made.holder}" if made.holder else made.user
    note(settings, f"token {made.id} of {whose}; this is the only time its secret is shown:")
    click.echo(made.secret)


@token.command("revoke", cls=HaiCommand)
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@click.pass_obj
def revoke(settings: Settings, ids: tuple[int, ...]) -> int:
    """Make tokens invalid at once."""

    async def work(client: Client) -> int:
        show(settings, TOKENS, [await client.users.revoke_token(id) for id in ids])
        return 0

    return call(settings, work)
