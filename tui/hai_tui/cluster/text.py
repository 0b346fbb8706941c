"""The cluster and a single node as styled text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.style import Style
from rich.text import Text

from hai.client.text.formatting import size_text
from hai.client.text.state_style import SILENT
from hai.v1.node_pb2 import Node
from hai_tui.cluster.model import CONDITION_STYLES, condition
from hai_tui.formatting.table import printable
from hai_tui.formatting.values import local
from hai_tui.i18n import text
from hai_tui.views.node_labels import labels_text
from hai_tui.views.silent_agents import rank_silence_text

Tones = Mapping[str, Style]


def summary(counts: Counter[str], waiting: int, tones: Tones) -> Text:
    """Return the legend with the number of nodes in each condition, such as `16 nodes  □ 4 free  ■ 10 held …`."""
    line = Text(no_wrap=True, overflow="ellipsis").append(
        text("cluster.nodes", count=counts.total()), "bold"
    )
    for condition_name, node_style in CONDITION_STYLES.items():
        if counts[condition_name] or condition_name in ("FREE", "HELD"):
            line.append("  ").append(
                f"{node_style.glyph} {counts[condition_name]} {text(f'node.{condition_name}')}",
                tones[node_style.tone],
            )
    return line.append("  ").append(text("cluster.waiting", count=waiting), tones["waits"])


def node_card(
    node: Node, user: str, tones: Tones, *, now: float, use: str = "", tenants: int = 6
) -> Text:
    """Return the facts of a node in a few lines; `use` are sentences about its usage."""
    condition_name = condition(node, user)
    node_style = CONDITION_STYLES[condition_name]
    card = Text().append(printable(node.name), "bold")
    card.append("  ").append(
        f"{node_style.glyph} {text(f'node.{condition_name}')}\n", tones[node_style.tone]
    )
    card.append("\n".join(facts(node)))
    if use:
        card.append(f"\n{use}", tones["busy"])
    if node.reason:
        card.append("\n").append(
            printable(node.reason), tones["bad" if condition_name == "NOT_READY" else "held"]
        )
    for tenant in node.tenants[:tenants]:
        task = f"{tenant.task_id} {tenant.task_name}".rstrip()
        content = text("node.tenant", task=task, user=tenant.user, rank=tenant.rank)
        card.append("\n").append(printable(content))
        if silent := rank_silence_text(tenant, now):
            card.append(f" · {silent}", tones[SILENT.tone])
    if len(node.tenants) > tenants:
        card.append("\n").append(text("node.more", count=len(node.tenants) - tenants), "dim")
    return card


def facts(node: Node) -> Sequence[str]:
    """Return lines about the group, resources, topology and labels of a node."""
    zone = f"#{node.zone}" if node.zone else ""
    gpus = text("node.gpus", count=node.gpus)
    if node.mig_profile:
        gpus += f" {node.mig_profile}"
    if node.gpus_simulated and node.gpus:
        gpus += f" ({text('node.simulated')})"
    resources = [gpus, text("node.cpus", count=node.cpus)]
    if node.memory_bytes:
        resources.append(size_text(node.memory_bytes))
    lines = [f"{node.group}{zone} · {', '.join(resources)}"]
    if node.topology:
        lines.append(text("node.topology", path=" / ".join(node.topology)))
    if node.labels:
        lines.append(printable(text("node.labels", labels=labels_text(node))))
    lines.append(text("node.since", time=local(node.update_time)))
    return lines
