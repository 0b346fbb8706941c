"""`hai nodes`, `hai groups`, and for operators `hai node …` and `hai group …`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiGroup, TableCommand
from hai_tui.cli.complete import groups as complete_groups
from hai_tui.cli.complete import nodes as complete_nodes
from hai_tui.cli.failures import exit_code, tell
from hai_tui.cli.mistyped import question_group
from hai_tui.cli.node_view import (
    CHANGED_GROUP,
    GROUPS,
    NODES,
    SETTINGS,
    effect_lines,
    settings_in_force,
    tree,
)
from hai_tui.cli.policy_text import Name, Pair, Setting, policy_of
from hai_tui.cli.session import call
from hai_tui.cli.settings import Settings
from hai_tui.cli.show import note, show, show_one, table
from hai_tui.cli.table import printable
from hai_tui.cli.texts import text
from hai_tui.labels import has, relabelling, told

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Group, Node

_NODES_HELP = """List nodes: whether they take work, what they have, and who holds them.

\b
Examples:
  hai nodes
  hai nodes -g default --tree
  hai nodes -l rack=r7 -o wide
  hai nodes --json | jq -r '.nodes[] | select(.cordoned) | .name'
"""


@click.command("nodes", cls=TableCommand, help=_NODES_HELP)
@click.option("-g", "--group", default="", shell_complete=complete_groups, help="One node group.")
@click.option("-l", "--label", "labels", multiple=True, help="With a label: KEY or KEY=VALUE.")
@click.option("--tree", "as_tree", is_flag=True, help="By group and zone.")
@click.pass_obj
def nodes(settings: Settings, group: str, labels: tuple[str, ...], as_tree: bool) -> int:
    """The function behind the command."""

    async def work(client: Client) -> int:
        listed = await client.nodes.list(group)
        found = [node for node in listed if all(has(node, label) for label in labels)]
        if as_tree and settings.sentences:
            click.echo(tree(found), nl=False)
        else:
            show(settings, NODES, found)
        if group and not listed:
            await question_group(client, settings, group)
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
    """Take nodes out of service and back, and label them (operators)."""


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
    return _each(settings, names, lambda c, name: c.nodes.cordon(name, reason), _done("cordoned"))


@node.command("uncordon")
@_NAMES
@click.pass_obj
def uncordon(settings: Settings, names: tuple[str, ...]) -> int:
    """Let nodes take work again."""
    return _each(settings, names, lambda c, name: c.nodes.uncordon(name), _done("uncordoned"))


@node.command("drain")
@_NAMES
@_REASON
@click.pass_obj
def drain(settings: Settings, names: tuple[str, ...], reason: str) -> int:
    """Let nodes take no new work and suspend what runs there."""
    return _each(settings, names, lambda c, name: c.nodes.drain(name, reason), _done("drained"))


_LABEL_HELP = """Set labels of nodes, and remove them.

KEY=VALUE sets a label, KEY- removes it; all other words are nodes. Labels have
the form of Kubernetes' own, and are kept beside them.

\b
Examples:
  hai node label node2 rack=r7 fabric=ib
  hai node label node2 node3 old-
  hai nodes -l rack=r7
"""


@node.command("label", help=_LABEL_HELP, short_help="Set labels of nodes, and remove them.")
@click.argument(
    "words",
    metavar="NODE... [KEY=VALUE|KEY-]...",
    nargs=-1,
    required=True,
    shell_complete=complete_nodes,
)
@click.pass_obj
def label(settings: Settings, words: tuple[str, ...]) -> int:
    """The function behind the command."""
    wanted = relabelling(words)
    if not wanted.rest:
        raise click.UsageError("which node? `hai nodes` lists them")
    if not wanted.labels and not wanted.remove:
        raise click.UsageError("name a label to set, such as rack=r7, or one to remove: rack-")
    return _each(
        settings,
        wanted.rest,
        lambda c, name: c.nodes.label(name, wanted.labels, remove=wanted.remove),
        lambda changed: text("done.labelled", labels=told(changed) or "-"),
    )


def _done(what: str) -> Callable[[Node], str]:
    return lambda changed: text(f"done.{what}")


def _each(
    settings: Settings,
    names: tuple[str, ...],
    do: Callable[[Client, str], Awaitable[Node]],
    done: Callable[[Node], str],
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
    done: Callable[[Node], str],
) -> tuple[Node | None, int]:
    from hai.client.errors import HaiError

    try:
        changed = await do(client, name)
    except HaiError as error:
        tell(error, as_json=settings.json, subject=name)
        return None, exit_code(error)
    if settings.sentences:
        click.echo(f"{name}  {printable(done(changed))}")
    return changed, 0


_UPDATE_HELP = """Change how a group shares its nodes and how its tasks are scheduled.

A SETTING that is not named stays as it is; an unset one follows the server.
`hai group show` lists all of them. With --preview nothing is changed: it is
told what the next scheduling pass would do otherwise.

\b
Examples:
  hai group update default staying=2 minimum_seconds=30m --preview
  hai group update small --packed default_quota=4
  hai group update default demotion=HIGH:NORMAL:2h,ABOVE_NORMAL:NORMAL:30m
  hai group update default --unset staying
"""


@click.group("group", cls=HaiGroup)
def group() -> None:
    """Change the settings of node groups (operators)."""


_GROUP = click.argument("name", metavar="GROUP", shell_complete=complete_groups)


@group.command("show", cls=TableCommand)
@_GROUP
@click.pass_obj
def show_group(settings: Settings, name: str) -> int:
    """Show the scheduling settings of a group that are in force."""

    async def work(client: Client) -> int:
        found = await _group(client, name)
        if settings.sentences:
            table(settings, SETTINGS, settings_in_force(found))
        else:
            show_one(settings, GROUPS, found)
        return 0

    return call(settings, work)


async def _group(client: Client, name: str) -> Group:
    from hai.client.errors import NotFound

    found = next((group for group in await client.nodes.groups() if group.name == name), None)
    if found is None:
        raise NotFound(f"there is no node group {name!r}", hint="`hai groups` lists them")
    return found


@group.command(
    "update",
    cls=TableCommand,
    help=_UPDATE_HELP,
    short_help="Change how it is shared and scheduled.",
)
@_GROUP
@click.argument("changes", metavar="[SETTING=VALUE]...", nargs=-1, type=Setting())
@click.option("--packed/--no-packed", default=None, help="Small tasks share a node, or not.")
@click.option("--unset", multiple=True, type=Name(), help="Follow the server again; repeatable.")
@click.option("--preview", is_flag=True, help="Change nothing, tell the effect.")
@click.pass_obj
def update(
    settings: Settings,
    /,
    name: str,
    changes: tuple[Pair, ...],
    packed: bool | None,
    unset: tuple[str, ...],
    preview: bool,
) -> int:
    """The function behind the command."""
    if not changes and not unset and packed is None:
        raise click.UsageError("nothing to change; name a setting, such as staying=2, or --packed")
    if both := sorted({key for key, _ in changes}.intersection(unset)):
        raise click.UsageError(f"{both[0]} is both set and unset")
    policy = policy_of(changes)

    async def work(client: Client) -> int:
        changed = await client.nodes.update_group(
            name, packed, policy=policy, unset=unset, preview=preview
        )
        _tell(settings, changed, preview)
        await question_group(client, settings, name)
        return 0

    return call(settings, work)


def _tell(settings: Settings, changed: Group, preview: bool) -> None:
    if not preview or not settings.sentences:
        show_one(settings, CHANGED_GROUP, changed)
        return
    lines = list(effect_lines(changed.effect)) or [text("preview.none")]
    click.echo("".join(f"{printable(line)}\n" for line in lines), nl=False)
    note(settings, text("preview.done"))
