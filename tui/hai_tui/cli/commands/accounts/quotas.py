"""`hai quota …`: how many nodes a user or user group may hold at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_groups, complete_users
from hai_tui.cli.output.output import note, note_warnings, show, show_one
from hai_tui.cli.parameters import combine, parse_future
from hai_tui.cli.settings import Settings, with_client
from hai_tui.formatting.values import Priority
from hai_tui.name_warnings import group_warning, subject_warning, user_group_warning
from hai_tui.views.accounts import QUOTAS

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client

_SUBJECT = click.argument("subject", shell_complete=complete_users)
_which = combine(
    click.option(
        "-g",
        "--group",
        default="default",
        show_default=True,
        shell_complete=complete_groups,
        help="Node group.",
    ),
    click.option(
        "-p",
        "--priority",
        type=Priority(),
        default=-1,
        help="One level; without it, all levels together.",
    ),
    click.option("--user-group", "is_group", is_flag=True, help="SUBJECT is a user group."),
)


@click.group("quota", cls=HaiGroup)
def quota() -> None:
    """List quotas; set and delete them (admins)."""


@quota.command("list", cls=TableCommand)
@click.argument("subject", default="", shell_complete=complete_users)
@with_client
async def list_quotas(settings: Settings, client: Client, subject: str) -> None:
    """List the quotas of a user or user group, or all."""
    found = await client.users.quotas(subject)
    show(settings, QUOTAS, found)
    if subject and not found:
        note_warnings(settings, await subject_warning(client, subject))


@quota.command("set", cls=HaiCommand)
@_SUBJECT
@click.argument("nodes", type=click.IntRange(0))
@_which
@click.option("--expires", metavar="TIME", callback=parse_future, help="30d, or 2026-12-31.")
@with_client
async def set_quota(
    settings: Settings, client: Client, /, expires: datetime | None, is_group: bool, **fields: Any
) -> None:
    """Let SUBJECT hold so many NODES at once. Own quotas beat those of user groups.

    \b
    Examples:
      hai quota set alice 4                       all levels together, in the group default
      hai quota set alice 2 -p HIGH -g big --expires 30d
      hai quota set staff 8 --user-group
    """
    from hai.v1.user_pb2 import Quota

    new = Quota(subject_is_group=is_group, **fields)
    if expires:
        new.expire_time.FromDatetime(expires)

    show_one(settings, QUOTAS, await client.users.set_quota(new))
    note_warnings(settings, await group_warning(client, new.group))
    if is_group:
        note_warnings(settings, await user_group_warning(client, new.subject))


@quota.command("delete", cls=HaiCommand)
@_SUBJECT
@_which
@with_client
async def delete(
    settings: Settings, client: Client, subject: str, group: str, priority: int, is_group: bool
) -> None:
    """Remove one quota."""
    await client.users.delete_quota(subject, group, priority, is_group)
    note(settings, f"the quota of {subject} in {group} is deleted")
