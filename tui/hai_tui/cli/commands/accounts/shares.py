"""`hai share …`: the part of a node group that a user group has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import complete_groups, complete_user_groups
from hai_tui.cli.output.output import note, note_warnings, show, show_one
from hai_tui.cli.parameters import group_filter
from hai_tui.cli.settings import Settings, with_client
from hai_tui.name_warnings import group_warning, user_group_warning
from hai_tui.views.accounts import SHARES

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.user_pb2 import Share


class _Limit(click.ParamType[int]):
    """A number of nodes on the command line, or `none`."""

    name = "limit"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the number; -1 for none."""
        if str(value).lower() == "none":
            return _NO_LIMIT
        if not str(value).isdecimal() or int(str(value)) > _MAX_NODES:
            self.fail(f"{value!r} must be none or a number up to {_MAX_NODES}", param, ctx)
        return int(str(value))


_NO_LIMIT = -1
_MAX_NODES = 1_000_000
_USER_GROUP = click.argument("user_group", shell_complete=complete_user_groups)
_GROUP = click.option(
    "-g",
    "--group",
    default="default",
    show_default=True,
    shell_complete=complete_groups,
    help="Node group.",
)


@click.group("share", cls=HaiGroup)
def share() -> None:
    """List shares of node groups; set and delete them (admins)."""


@share.command("list", cls=TableCommand)
@click.argument("user_group", default="", shell_complete=complete_user_groups)
@group_filter
@with_client
async def list_shares(settings: Settings, client: Client, user_group: str, group: str) -> None:
    """List shares: of one user group or all, in one node group or all.

    \b
    Examples:
      hai share list
      hai share list vision -g big
      hai share list --json | jq '[.shares[].guaranteed] | add'
    """
    found = await client.users.shares(user_group, group)
    show(settings, SHARES, found)
    if user_group and not found:
        note_warnings(settings, await user_group_warning(client, user_group))
    if group and not found:
        note_warnings(settings, await group_warning(client, group))


@share.command("set", cls=HaiCommand)
@_USER_GROUP
@_GROUP
@click.option(
    "--guaranteed", type=click.IntRange(0, _MAX_NODES), metavar="N", help="Guaranteed nodes."
)
@click.option(
    "--weight",
    type=click.IntRange(0, 10_000),
    metavar="W",
    help="Part of the nodes that are not guaranteed.",
)
@click.option("--limit", type=_Limit(), metavar="N|none", help="Maximum number of nodes.")
@with_client
async def set_share(
    settings: Settings, client: Client, /, user_group: str, group: str, **changes: int | None
) -> None:
    """Give the users of USER_GROUP together a part of a node group.

    Options that are not given stay as they are; a new share guarantees nothing, has
    weight 0 and no limit. Guaranteed nodes are lent to others while the user group
    does not need them, and are returned when it does.

    \b
    Examples:
      hai share set vision --guaranteed 16                in the group default
      hai share set speech -g big --weight 2 --limit 32
      hai share set speech -g big --limit none
    """
    changed = _changed(await _find(client, user_group, group), changes)
    show_one(settings, SHARES, await client.users.set_share(changed))
    note_warnings(settings, await user_group_warning(client, user_group))


async def _find(client: Client, user_group: str, group: str) -> Share:
    """Return the share of the server, or a new one."""
    from hai.v1.user_pb2 import Share

    found = await client.users.shares(user_group, group)
    return found[0] if found else Share(user_group=user_group, group=group)


def _changed(share: Share, changes: dict[str, int | None]) -> Share:
    for name, value in changes.items():
        if value == _NO_LIMIT:
            share.ClearField("limit")
        elif value is not None:
            setattr(share, name, value)
    return share


@share.command("delete", cls=HaiCommand)
@_USER_GROUP
@_GROUP
@with_client
async def delete(settings: Settings, client: Client, user_group: str, group: str) -> None:
    """Delete a share; its users then get only nodes that others leave free."""
    await client.users.delete_share(user_group, group)
    note(settings, f"the share of {user_group} in {group} is deleted")
