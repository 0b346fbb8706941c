"""`hai quota …`: how many nodes a user or user group may hold at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.client_call import call
from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import groups as complete_groups
from hai_tui.cli.completion import users as complete_users
from hai_tui.cli.output.output import note, show, show_one, warn
from hai_tui.cli.settings import Settings
from hai_tui.cli.time_options import after_now
from hai_tui.formatting.values import Priority
from hai_tui.name_warnings import group_warning, subject_warning, user_group_warning
from hai_tui.views.accounts import QUOTAS

if TYPE_CHECKING:
    from datetime import datetime

    from hai.client.client import Client

_SET_HELP = """Let SUBJECT hold so many NODES at once. Own quotas beat those of user groups.

\b
Examples:
  hai quota set alice 4                       all levels together, in the group default
  hai quota set alice 2 -p HIGH -g big --expires 30d
  hai quota set staff 8 --user-group
"""

_SUBJECT = click.argument("subject", shell_complete=complete_users)
_WHICH = (
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


def _which(function: Any) -> Any:
    for option in reversed(_WHICH):
        function = option(function)
    return function


@click.group("quota", cls=HaiGroup)
def quota() -> None:
    """List quotas; set and delete them (admins)."""


@quota.command("list", cls=TableCommand)
@click.argument("subject", default="", shell_complete=complete_users)
@click.pass_obj
def list_quotas(settings: Settings, subject: str) -> int:
    """List the quotas of a user or user group, or all."""

    async def work(client: Client) -> int:
        found = await client.users.quotas(subject)
        show(settings, QUOTAS, found)
        if subject and not found:
            warn(settings, await subject_warning(client, subject))
        return 0

    return call(settings, work)


@quota.command("set", cls=HaiCommand, help=_SET_HELP)
@_SUBJECT
@click.argument("nodes", type=click.IntRange(0))
@_which
@click.option("--expires", metavar="TIME", callback=after_now, help="30d, or 2026-12-31.")
@click.pass_obj
def set_quota(
    settings: Settings, /, expires: datetime | None, is_group: bool, **fields: Any
) -> int:
    """The function behind the command."""
    from hai.v1.user_pb2 import Quota

    new = Quota(subject_is_group=is_group, **fields)
    if expires:
        new.expire_time.FromDatetime(expires)

    async def work(client: Client) -> int:
        show_one(settings, QUOTAS, await client.users.set_quota(new))
        warn(settings, await group_warning(client, new.group))
        if is_group:
            warn(settings, await user_group_warning(client, new.subject))
        return 0

    return call(settings, work)


@quota.command("delete", cls=HaiCommand)
@_SUBJECT
@_which
@click.pass_obj
def delete(settings: Settings, subject: str, group: str, priority: int, is_group: bool) -> int:
    """Remove one quota."""

    async def work(client: Client) -> int:
        await client.users.delete_quota(subject, group, priority, is_group)
        note(settings, f"the quota of {subject} in {group} is deleted")
        return 0

    return call(settings, work)
