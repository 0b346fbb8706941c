"""`hai storage …`: the mounts of tasks, and the rules that make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.completion import (
    complete_mount_rules,
    complete_owners,
    complete_tasks,
)
from hai_tui.cli.output.output import note, show, show_one
from hai_tui.cli.parameters import user_option
from hai_tui.cli.settings import Settings, with_client
from hai_tui.views.storage import MOUNTS, RULES

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.storage_pb2 import MountRule

_KINDS = ("host-path", "nfs", "pvc", "config-map", "csi", "tmpfs")
_HOST_TYPES = ("Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")


@click.group("storage", cls=HaiGroup)
def storage() -> None:
    """List the mounts of tasks; change the mount rules (operators)."""


@storage.command("list", cls=TableCommand)
@click.option("--task", "task_id", type=int, default=0, shell_complete=complete_tasks, help="Id.")
@user_option
@with_client
async def list_mounts(settings: Settings, client: Client, task_id: int, user: str) -> None:
    """List the mounts of your tasks, of a user's tasks, or of one task.

    \b
    Examples:
      hai storage list
      hai storage list --task 12
      hai storage list --user ada --json
    """
    if task_id and user:
        raise click.UsageError("--task and --user exclude one another: a task has an owner")

    found = await client.storage.mounts(user, task_id)
    show(settings, MOUNTS, found.mounts, {"warnings": list(found.warnings)})
    _note_warnings(settings, found.warnings)


@storage.command("rules", cls=TableCommand)
@with_client
async def rules(settings: Settings, client: Client) -> None:
    """List the rules that make mounts."""
    show(settings, RULES, await client.storage.rules())


def _pairs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} must be NAME=VALUE", ctx, param)
    return dict(value.split("=", 1) for value in values)


@storage.command("add", cls=HaiCommand)
@click.argument("mount_path")
@click.argument("source", default="")
@click.option(
    "--owner",
    "owners",
    multiple=True,
    required=True,
    shell_complete=complete_owners,
    help="User, user group, role, or public. Repeatable.",
)
@click.option("--kind", type=click.Choice(_KINDS), default="host-path", show_default=True)
@click.option("--write", "writable", is_flag=True, help="Tasks may write. Default: read only.")
@click.option(
    "--when", "conditions", multiple=True, metavar="EXPR", help="Only if this is true. Repeatable."
)
@click.option(
    "--code",
    "mount_code",
    type=click.IntRange(0),
    default=0,
    help="Only for tasks with these bits of mount_code.",
)
@click.option("--host-type", type=click.Choice(_HOST_TYPES), help="What must exist on the node.")
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    callback=_pairs,
    metavar="A=B",
    help="Attribute of a csi volume.",
)
@click.option("--remove", "removes", is_flag=True, help="Remove what other rules mount.")
@click.option("--force", is_flag=True, help="Allow a contradiction to another rule.")
@click.option("--dry-run", "validate_only", is_flag=True, help="Check only.")
@with_client
async def add(
    settings: Settings, client: Client, /, force: bool, validate_only: bool, **fields: Any
) -> None:
    """Mount SOURCE at MOUNT_PATH in tasks of the owners. For operators.

    Both may contain {user.name}, {user.group} and {task.id}. With --remove no
    source is needed, and a * at the end of the path matches any rest. Rules of
    a user come after those of groups, rules with a condition after those without;
    the last rule wins.

    \b
    Examples:
      hai storage add /data /srv/data --owner public
      hai storage add /workspace '/srv/ws/{user.name}' --owner public --write \\
          --host-type DirectoryOrCreate
      hai storage add /lab nfs.example:/lab --kind nfs --owner vision --write
      hai storage add /scratch 8Gi --kind tmpfs --owner public \\
          --when 'task.type == "training"'
      hai storage add /data --remove --owner guests
    """
    rule = _rule(**fields)

    made = await client.storage.create_rule(rule, force=force, validate_only=validate_only)
    show_one(settings, RULES, made.rule)
    _note_warnings(settings, made.warnings)


def _rule(kind: str, removes: bool, **fields: Any) -> MountRule:
    from hai.v1.storage_pb2 import MountAction, MountKind, MountRule

    return MountRule(
        kind=MountKind.Value(f"MOUNT_KIND_{kind.replace('-', '_').upper()}"),
        action=MountAction.Value(f"MOUNT_ACTION_{'REMOVE' if removes else 'ADD'}"),
        **fields,
    )


def _note_warnings(settings: Settings, warnings: Any) -> None:
    for warning in warnings:
        note(settings, f"warning: {warning}")


@storage.command("delete", cls=HaiCommand)
@click.argument(
    "ids", metavar="ID...", type=int, nargs=-1, required=True, shell_complete=complete_mount_rules
)
@with_client
async def delete(settings: Settings, client: Client, ids: tuple[int, ...]) -> None:
    """Delete rules; started runs keep their mounts."""
    for id in ids:
        await client.storage.delete_rule(id)
        note(settings, f"rule {id} is deleted")
