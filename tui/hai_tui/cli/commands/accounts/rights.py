"""`hai right …`: permissions of users and user groups beyond their role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_rights, complete_users
from hai_tui.cli.output.output import note, note_warnings, show, show_one
from hai_tui.cli.parameters import expires_option
from hai_tui.cli.settings import Settings, with_client
from hai_tui.name_warnings import subject_warning, user_group_warning
from hai_tui.views.accounts import GRANTS

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client

_SUBJECT = click.argument("subject", shell_complete=complete_users)
_RIGHT = click.argument("right", shell_complete=complete_rights)
_IS_GROUP = click.option("--user-group", "is_group", is_flag=True, help="SUBJECT is a user group.")


@click.group("right", cls=HaiGroup)
def right() -> None:
    """List rights beyond roles; grant and revoke them (admins)."""


@right.command("list", cls=TableCommand)
@click.argument("subject", default="", shell_complete=complete_users)
@with_client
async def list_rights(settings: Settings, client: Client, subject: str) -> None:
    """List what was granted to a user or user group, or to all."""
    found = await client.users.rights(subject)
    show(settings, GRANTS, found)
    if subject and not found:
        note_warnings(settings, await subject_warning(client, subject))


@right.command("grant", cls=HaiCommand)
@_SUBJECT
@_RIGHT
@_IS_GROUP
@expires_option
@with_client
async def grant(
    settings: Settings,
    client: Client,
    subject: str,
    right: str,
    is_group: bool,
    expires: datetime | None,
) -> None:
    """Let SUBJECT do more than the role allows. For admins.

    RIGHT is a word, for some with an argument; the manual lists them. With
    --user-group it counts for every member of the user group.

    \b
    Examples:
      hai right grant ada manage_tasks --expires 30d
      hai right grant vision image:registry.example/vision/ --user-group
      hai right grant bob ports:4
    """
    from hai.v1.user_pb2 import Grant

    new = Grant(subject=subject, subject_is_group=is_group, right=right)
    if expires:
        new.expire_time.FromDatetime(expires)

    show_one(settings, GRANTS, await client.users.grant(new))
    if is_group:
        note_warnings(settings, await user_group_warning(client, subject))


@right.command("revoke", cls=HaiCommand)
@_SUBJECT
@_RIGHT
@_IS_GROUP
@with_client
async def revoke(
    settings: Settings, client: Client, subject: str, right: str, is_group: bool
) -> None:
    """Revoke a granted right; `hai user update` changes rights of the account."""
    await client.users.revoke(subject, right, is_group)
    note(settings, f"{right} of {subject} is revoked")
