"""The tree of groups, zones, nodes and tasks as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hai.client.text.state_style import SILENT
from hai.v1.node_pb2 import Node, NodeTenant
from hai_tui.cluster.layout import natural
from hai_tui.cluster.model import CONDITION_STYLES, condition
from hai_tui.formatting.cells import Cell
from hai_tui.i18n import text
from hai_tui.views.silent_agents import rank_silence_text


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of the tree. It opens the node or the task that it names."""

    key: str
    depth: int
    cell: Cell
    node: str = ""
    task: int = 0


def branches(nodes: Iterable[Node], user: str, now: float) -> list[Branch]:
    """Return all lines of the tree."""
    lines: list[Branch] = []
    previous = ("", "")
    for node in sorted(nodes, key=lambda n: (n.group, natural(n.zone), natural(n.name))):
        if node.group != previous[0]:
            lines.append(Branch(f"g/{node.group}", 0, Cell(node.group)))
        if node.zone and (node.group, node.zone) != previous:
            lines.append(Branch(f"z/{node.group}/{node.zone}", 1, Cell(node.zone)))
        previous = (node.group, node.zone)
        lines.append(_node_branch(node, user))
        lines += (_tenant_branch(node, tenant, now) for tenant in node.tenants)
    return lines


def _node_branch(node: Node, user: str) -> Branch:
    condition_name = condition(node, user)
    reason = f"  {node.reason}" if node.reason else ""
    content = f"{CONDITION_STYLES[condition_name].glyph} {node.name}  {text(f'node.{condition_name}')}{reason}"
    depth = 2 if node.zone else 1
    return Branch(
        f"n/{node.name}",
        depth,
        Cell(content, CONDITION_STYLES[condition_name].tone),
        node=node.name,
    )


def _tenant_branch(node: Node, tenant: NodeTenant, now: float) -> Branch:
    task = f"{tenant.task_id} {tenant.task_name}".rstrip()
    silent = rank_silence_text(tenant, now)
    content = "  ".join(filter(None, (f"{task} ({tenant.user})", f"rank {tenant.rank}", silent)))
    depth = 3 if node.zone else 2
    key = f"t/{node.name}/{tenant.task_id}/{tenant.rank}"
    return Branch(
        key, depth, Cell(content, SILENT.tone if silent else "quiet"), node.name, tenant.task_id
    )
