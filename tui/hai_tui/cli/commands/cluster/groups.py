"""`hai groups`: the node groups. `hai group …`: their settings, for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiGroup, TableCommand
from hai_tui.cli.completion import complete_groups
from hai_tui.cli.output.output import note, note_warnings, print_rows, show, show_one
from hai_tui.cli.settings import Settings, with_client
from hai_tui.formatting.table import printable
from hai_tui.i18n import text
from hai_tui.name_warnings import group_warning
from hai_tui.views.nodes import CHANGED_GROUP, GROUPS, SETTINGS, effect_lines, settings_in_force
from hai_tui.views.policy import Pair, SettingNameType, SettingType, parse_policy

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Group


@click.command("groups", cls=TableCommand)
@with_client
async def groups(settings: Settings, client: Client) -> None:
    """List node groups: how many nodes they have, and how many are free."""
    show(settings, GROUPS, await client.nodes.groups())


@click.group("group", cls=HaiGroup)
def group() -> None:
    """Change the settings of node groups (operators)."""


_GROUP = click.argument("name", metavar="GROUP", shell_complete=complete_groups)


@group.command("show", cls=TableCommand)
@_GROUP
@with_client
async def show_group(settings: Settings, client: Client, name: str) -> None:
    """Show the scheduling settings of a group that are in force."""
    settings_group = await _find_group(client, name)
    if settings.sentences:
        print_rows(settings, SETTINGS, settings_in_force(settings_group))
    else:
        show_one(settings, GROUPS, settings_group)


async def _find_group(client: Client, name: str) -> Group:
    from hai.client.errors import NotFound

    settings_group = next(
        (group for group in await client.nodes.groups() if group.name == name), None
    )
    if settings_group is None:
        raise NotFound(f"there is no node group {name!r}", hint="`hai groups` lists them")
    return settings_group


@group.command(
    "update",
    cls=TableCommand,
    short_help="Change how it is shared and scheduled.",
)
@_GROUP
@click.argument("changes", metavar="[SETTING=VALUE]...", nargs=-1, type=SettingType())
@click.option("--packed/--no-packed", default=None, help="Whether small tasks share a node.")
@click.option(
    "--unset", multiple=True, type=SettingNameType(), help="Follow the server again; repeatable."
)
@click.option("--preview", is_flag=True, help="Show the effect without changing anything.")
@with_client
async def update(
    settings: Settings,
    client: Client,
    /,
    name: str,
    changes: tuple[Pair, ...],
    packed: bool | None,
    unset: tuple[str, ...],
    preview: bool,
) -> None:
    """Change how a group shares its nodes and how its tasks are scheduled.

    A SETTING that is not given stays as it is; an unset one follows the server.
    `hai group show` lists all of them. With --preview nothing is changed; the
    command shows what the next scheduling pass would do differently.

    \b
    Examples:
      hai group update default staying=2 minimum_seconds=30m --preview
      hai group update small --packed default_quota=4
      hai group update default demotion=HIGH:NORMAL:2h,ABOVE_NORMAL:NORMAL:30m
      hai group update default --unset staying
    """
    if not changes and not unset and packed is None:
        raise click.UsageError("nothing to change; name a setting, such as staying=2, or --packed")
    if both := sorted({key for key, _ in changes}.intersection(unset)):
        raise click.UsageError(f"{both[0]} is both set and unset")
    policy = parse_policy(changes)

    changed = await client.nodes.update_group(
        name, packed, policy=policy, unset=unset, preview=preview
    )
    _report_change(settings, changed, preview)
    note_warnings(settings, await group_warning(client, name))


def _report_change(settings: Settings, changed: Group, preview: bool) -> None:
    """Print the changed settings, or, for a preview, their effect."""
    if not preview or not settings.sentences:
        show_one(settings, CHANGED_GROUP, changed)
        return
    lines = list(effect_lines(changed.effect)) or [text("preview.none")]
    click.echo("".join(f"{printable(line)}\n" for line in lines), nl=False)
    note(settings, text("preview.done"))
