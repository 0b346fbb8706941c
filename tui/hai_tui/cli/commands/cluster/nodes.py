"""`hai nodes`: the nodes. `hai node …`: cordon, drain and label them, for operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from hai_tui.cli.command import HaiGroup, TableCommand
from hai_tui.cli.completion import complete_nodes
from hai_tui.cli.errors import exit_code, print_error
from hai_tui.cli.output.output import note_warnings, print_rows, show
from hai_tui.cli.parameters import group_filter
from hai_tui.cli.settings import Settings, call_server, with_client
from hai_tui.formatting.table import printable
from hai_tui.i18n import text
from hai_tui.name_warnings import group_warning
from hai_tui.views.gpus import GPUS, gpus_of_nodes
from hai_tui.views.node_labels import has_label, labels_text, parse_label_patch
from hai_tui.views.nodes import NODES, node_status, tree_text

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.node_pb2 import Node


@click.command("nodes", cls=TableCommand)
@click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=complete_nodes)
@group_filter
@click.option("-l", "--label", "labels", multiple=True, help="With a label: KEY or KEY=VALUE.")
@click.option("--tree", "as_tree", is_flag=True, help="By group and zone.")
@with_client
async def nodes(
    settings: Settings,
    client: Client,
    names: tuple[str, ...],
    group: str,
    labels: tuple[str, ...],
    as_tree: bool,
) -> None:
    """List nodes: whether they take work, what they have, and who holds them.

    With NODE, only these, with the memory, use and temperature of each real GPU.

    \b
    Examples:
      hai nodes
      hai nodes node1
      hai nodes -g default --tree
      hai nodes -l rack=r7 -o wide
      hai nodes --json | jq -r '.nodes[] | select(.cordoned) | .name'
    """
    if names:
        await _show_nodes(settings, client, names)
        return
    listed = await client.nodes.list(group)
    found = [node for node in listed if all(has_label(node, label) for label in labels)]
    if as_tree and settings.sentences:
        click.echo(tree_text(found, settings.clock()), nl=False)
    else:
        show(settings, NODES, found)
    if group and not listed:
        note_warnings(settings, await group_warning(client, group))


async def _show_nodes(settings: Settings, client: Client, names: tuple[str, ...]) -> None:
    """Show nodes and their GPUs."""
    found = [await client.nodes.get(name) for name in names]
    show(settings, NODES, found)
    gpus = gpus_of_nodes(found)
    if gpus and settings.sentences and not settings.columns:
        click.echo()
        print_rows(settings, GPUS, gpus)


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
    """Stop new work on nodes; running tasks continue."""
    return _change_each(
        settings, names, lambda c, name: c.nodes.cordon(name, reason), _done_message("cordoned")
    )


@node.command("uncordon")
@_NAMES
@click.pass_obj
def uncordon(settings: Settings, names: tuple[str, ...]) -> int:
    """Allow new work on nodes again."""
    return _change_each(settings, names, lambda c, name: c.nodes.uncordon(name), _uncordoned)


@node.command("drain")
@_NAMES
@_REASON
@click.pass_obj
def drain(settings: Settings, names: tuple[str, ...], reason: str) -> int:
    """Stop new work on nodes and suspend their tasks."""
    return _change_each(
        settings, names, lambda c, name: c.nodes.drain(name, reason), _done_message("drained")
    )


@node.command("label", short_help="Set labels of nodes, and remove them.")
@click.argument(
    "words",
    metavar="NODE... [KEY=VALUE|KEY-]...",
    nargs=-1,
    required=True,
    shell_complete=complete_nodes,
)
@click.pass_obj
def label(settings: Settings, words: tuple[str, ...]) -> int:
    """Set labels of nodes, and remove them.

    KEY=VALUE sets a label, KEY- removes it; all other words are nodes. Labels have
    the form of Kubernetes labels, and are stored separately.

    \b
    Examples:
      hai node label node2 rack=r7 fabric=ib
      hai node label node2 node3 old-
      hai nodes -l rack=r7
    """
    patch = parse_label_patch(words)
    if not patch.other_arguments:
        raise click.UsageError("which node? `hai nodes` lists them")
    if not patch.labels and not patch.remove:
        raise click.UsageError("name a label to set, such as rack=r7, or one to remove: rack-")
    return _change_each(
        settings,
        patch.other_arguments,
        lambda c, name: c.nodes.label(name, patch.labels, remove=patch.remove),
        lambda changed: text("done.labelled", labels=labels_text(changed) or "-"),
    )


def _uncordoned(changed: Node) -> str:
    """Return the state of the node, because another reason may still keep work away."""
    if node_status(changed) == "READY":
        return text("done.uncordoned")
    return f"{node_status(changed)}: {changed.reason or '-'}"


def _done_message(message: str) -> Callable[[Node], str]:
    return lambda changed: text(f"done.{message}")


def _change_each(
    settings: Settings,
    names: tuple[str, ...],
    do: Callable[[Client, str], Awaitable[Node]],
    done: Callable[[Node], str],
) -> int:
    """Change each node and print a result for each. Return the exit code of the first failure, or 0."""

    async def work(client: Client) -> int:
        results = [await _change_one(client, settings, name, do, done) for name in names]
        if not settings.sentences:
            show(settings, NODES, [node for node, _ in results if node])
        return next((code for _, code in results if code), 0)

    return call_server(settings, work)


async def _change_one(
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
        print_error(error, as_json=settings.json, subject=name)
        return None, exit_code(error)
    if settings.sentences:
        click.echo(f"{name}  {printable(done(changed))}")
    return changed, 0
