"""`hai user …`: the users, for operators and admins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_rights, complete_users
from hai_tui.cli.output.output import note_warnings, show, show_one
from hai_tui.cli.settings import Settings, with_client
from hai_tui.name_warnings import new_group_warnings
from hai_tui.views.accounts import USERS

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.user_pb2 import User

_ROLES = click.Choice(["user", "operator", "admin"])


@click.group("user", cls=HaiGroup)
def user() -> None:
    """List, create and change users (operators and admins)."""


@user.command("list", cls=TableCommand)
@with_client
async def list_users(settings: Settings, client: Client) -> None:
    """List users."""
    show(settings, USERS, await client.users.list())


@user.command("create", cls=HaiCommand)
@click.argument("name")
@click.option("--role", type=_ROLES, default="user", show_default=True)
@click.option("--group", "groups", multiple=True, help="User group; the first is the shared one.")
@click.option(
    "--right",
    "rights",
    multiple=True,
    shell_complete=complete_rights,
    help="A right beyond the role.",
)
@click.option(
    "--uid", type=click.IntRange(0), metavar="N", default=0, help="Unix uid of the programs."
)
@with_client
async def create(
    settings: Settings, client: Client, /, name: str, role: str, **fields: Any
) -> None:
    """Add a user. `hai token create --user NAME` then gives them a token."""
    from hai.v1.user_pb2 import Role, User

    new = User(name=name, active=True, role=Role.Value(f"ROLE_{role.upper()}"), **fields)

    show_one(settings, USERS, await client.users.create(new))
    note_warnings(settings, *await new_group_warnings(client, new))


@user.command("update", cls=HaiCommand)
@click.argument("name", shell_complete=complete_users)
@click.option("--role", type=_ROLES)
@click.option("--group", "groups", multiple=True, help="Replaces all user groups; '' removes them.")
@click.option(
    "--right",
    "rights",
    multiple=True,
    shell_complete=complete_rights,
    help="Replaces all rights; '' removes them.",
)
@click.option("--uid", type=click.IntRange(0), metavar="N", help="Unix uid of the programs.")
@click.option("--active/--inactive", default=None, help="An inactive user's tasks are stopped.")
@with_client
async def update(settings: Settings, client: Client, /, name: str, **changes: Any) -> None:
    """Change a user; options that are not given stay as they are."""
    changed = _changed(await _find(client, name), changes)
    show_one(settings, USERS, await client.users.update(changed))
    if changes["groups"]:
        note_warnings(settings, *await new_group_warnings(client, changed))


async def _find(client: Client, name: str) -> User:
    from hai.client.errors import NotFound

    for found in await client.users.list():
        if found.name == name:
            return found
    raise NotFound(f"no user is named {name!r}", hint="`hai user list` shows all users")


def _changed(user: User, changes: dict[str, Any]) -> User:
    from hai.v1.user_pb2 import Role

    if changes["role"]:
        user.role = Role.Value(f"ROLE_{changes['role'].upper()}")
    if changes["groups"]:
        user.groups[:] = filter(None, changes["groups"])
    if changes["rights"]:
        user.rights[:] = filter(None, changes["rights"])
    if changes["uid"] is not None:
        user.uid = changes["uid"]
    if changes["active"] is not None:
        user.active = changes["active"]
    return user
