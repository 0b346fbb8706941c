"""`hai right …`: what users and user groups may do beyond their role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import rights as complete_rights
from hai_tui.cli.completion import users as complete_users
from hai_tui.cli.output.output import note, show, show_one, warn
from hai_tui.cli.settings import Settings
from hai_tui.cli.time_options import after_now
from hai_tui.name_warnings import subject_warning, user_group_warning
from hai_tui.views.accounts import GRANTS

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client

_GRANT_HELP = """Let SUBJECT do more than the role allows. For admins.

RIGHT is a word, for some with an argument; the manual lists them. With
--user-group it counts for every member of the user group.

\b
Examples:
  hai right grant ada manage_tasks --expires 30d
  hai right grant vision image:registry.example/vision/ --user-group
  hai right grant bob ports:4
"""

_SUBJECT = click.argument("subject", shell_complete=complete_users)
_RIGHT = click.argument("right", shell_complete=complete_rights)
_IS_GROUP = click.option("--user-group", "is_group", is_flag=True, help="SUBJECT is a user group.")


@click.group("right", cls=HaiGroup)
def right() -> None:
    """List rights beyond roles; grant and revoke them (admins)."""


@right.command("list", cls=TableCommand)
@click.argument("subject", default="", shell_complete=complete_users)
@click.pass_obj
def list_rights(settings: Settings, subject: str) -> int:
    """List what was granted to a user or user group, or to all."""

    async def work(client: Client) -> int:
        found = await client.users.rights(subject)
        show(settings, GRANTS, found)
        if subject and not found:
            warn(settings, await subject_warning(client, subject))
        return 0

    return call(settings, work)


@right.command("grant", cls=HaiCommand, help=_GRANT_HELP)
@_SUBJECT
@_RIGHT
@_IS_GROUP
@click.option(
    "--expires", metavar="TIME", callback=after_now, help="30d, or 2026-12-31. Default: never."
)
@click.pass_obj
def grant(
    settings: Settings, subject: str, right: str, is_group: bool, expires: datetime | None
) -> int:
    """The function behind the command."""
    from hai.v1.user_pb2 import Grant

    new = Grant(subject=subject, subject_is_group=is_group, right=right)
    if expires:
        new.expire_time.FromDatetime(expires)

    async def work(client: Client) -> int:
        show_one(settings, GRANTS, await client.users.grant(new))
        if is_group:
            warn(settings, await user_group_warning(client, subject))
        return 0

    return call(settings, work)


@right.command("revoke", cls=HaiCommand)
@_SUBJECT
@_RIGHT
@_IS_GROUP
@click.pass_obj
def revoke(settings: Settings, subject: str, right: str, is_group: bool) -> int:
    """Take back what was granted; rights of the account: `hai user update`."""

    async def work(client: Client) -> int:
        await client.users.revoke(subject, right, is_group)
        note(settings, f"{right} of {subject} is revoked")
        return 0

    return call(settings, work)
