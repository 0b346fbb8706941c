"""`hai nodes`, `hai groups`, and for operators `hai node …` and `hai group …`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiCommand, HaiGroup, TableCommand
from hai_tui.cli.complete import groups as complete_groups
from hai_tui.cli.complete import nodes as complete_nodes
from hai_tui.cli.failures import exit_code, tell
from hai_tui.cli.node_view import GROUPS, NODES, tree
from hai_tui.cli.session import call
from hai_tui.cli.settings import Settings
from hai_tui.cli.show import show, show_one
from hai_tui.cli.texts import text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Node

_NODES_HELP = """List nodes: whether they take work, what they have, and who holds them.

\b
Examples:
  hai nodes
  hai nodes -g default --tree
  hai nodes --json | jq -r '.nodes[] | select(.cordoned) | .name'
"""


@click.command("nodes", cls=TableCommand, help=_NODES_HELP)
@click.option("-g", "--group", default="", shell_complete=complete_groups, help="One node group.")
@click.option("--tree", "as_tree", is_flag=True, help="By group and zone.")
@click.pass_obj
def nodes(settings: Settings, group: str, as_tree: bool) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        found = await client.nodes.list(group)
        if as_tree and settings.sentences:
            click.echo(tree(found), nl=False)
        else:
            show(settings, NODES, found)
        return 0

    return call(settings, work)


@click.command("groups", cls=TableCommand)
@click.pass_obj
def groups(settings: Settings) -> int:
    """List node groups: how many nodes they have, and how many are free."""

    async def work(client: Client) -> int:
        show(settings, GROUPS, await client.nodes.groups())
        return 0

    return call(settings, work)


@click.group("node", cls=HaiGroup)
def node() -> None:
    """Take nodes out of service and back (operators)."""


_NAMES = click.argument(
    "names", metavar="NODE...", nargs=-1, required=True, shell_complete=complete_nodes
)
_REASON = click.option("--reason", default="", help="Why; shown to everybody.")


@node.command("cordon")
@_NAMES
@_REASON
@click.pass_obj
def cordon(settings: Settings, names: tuple[str, ...], reason: str) -> int:
    """Let nodes take no new work; what runs there runs on."""
    return _each(settings, names, lambda c, name: c.nodes.cordon(name, reason), "done.cordoned")


@node.command("uncordon")
@_NAMES
@click.pass_obj
def uncordon(settings: Settings, names: tuple[str, ...]) -> int:
    """Let nodes take work again."""
    return _each(settings, names, lambda c, name: c.nodes.uncordon(name), "done.uncordoned")


@node.command("drain")
@_NAMES
@_REASON
@click.pass_obj
def drain(settings: Settings, names: tuple[str, ...], reason: str) -> int:
    """Let nodes take no new work and suspend what runs there."""
    return _each(settings, names, lambda c, name: c.nodes.drain(name, reason), "done.drained")


def _each(
    settings: Settings,
    names: tuple[str, ...],
    do: Callable[[Client, str], Awaitable[Node]],
    done: str,
) -> int:
    async def work(client: Client) -> int:
        results = [await _one(client, settings, name, do, done) for name in names]
        if not settings.sentences:
            show(settings, NODES, [node for node, _ in results if node])
        return next((code for _, code in results if code), 0)

    return call(settings, work)


async def _one(
    client: Client,
    settings: Settings,
    name: str,
    do: Callable[[Client, str], Awaitable[Node]],
    done: str,
) -> tuple[Node | None, int]:
    from hai.client.errors import HaiError

    try:
        changed = await do(client, name)
    except HaiError as error:
        tell(error, as_json=settings.json, subject=name)
        return None, exit_code(error)
    if settings.sentences:
        click.echo(f"{name}  {text(done)}")
    return changed, 0


@click.group("group", cls=HaiGroup)
def group() -> None:
    """Change the settings of node groups (operators)."""


@group.command("update", cls=HaiCommand, short_help="Share nodes among small tasks, or not.")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option("--packed/--no-packed", required=True, help="Small tasks share a node, or not.")
@click.pass_obj
def update(settings: Settings, name: str, packed: bool) -> int:
    """Choose whether tasks smaller than a node share the nodes of a group."""

    async def work(client: Client) -> int:
        show_one(settings, GROUPS, await client.nodes.update_group(name, packed))
        return 0

    return call(settings, work)
