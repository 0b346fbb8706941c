"""The current usage of nodes: a bar for each node on the map, a legend, and a line of numbers."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from hai.client.text.formatting import size_text
from hai.client.text.state_style import StateStyle
from hai.v1.node_pb2 import Node
from hai.v1.usage_service_pb2 import NodeUsage
from hai_tui.cluster.model import CONDITION_STYLES, condition
from hai_tui.cluster.text import Tones
from hai_tui.i18n import text

_IDLE, _BUSY = 0.1, 0.6
_BARS = "▁▂▃▄▅▆▇█"

UsageByNode = Mapping[str, NodeUsage]


def share(node: Node, use: NodeUsage | None) -> float | None:
    """Return the used share of the GPUs, or of the CPUs for a node without GPUs; None if it was not measured."""
    if use is None:
        return None
    if use.HasField("gpu_utilisation"):
        return use.gpu_utilisation
    return min(1.0, use.cpus / node.cpus) if node.cpus else None


def node_style(node: Node, user: str, usages: UsageByNode) -> StateStyle:
    """Return a bar for a node that is held and measured, else the style of its condition."""
    part = share(node, usages.get(node.name)) if node.tenants else None
    if part is None:
        return CONDITION_STYLES[condition(node, user)]
    level = min(len(_BARS) - 1, int(part * len(_BARS)))
    return StateStyle(_BARS[level], "bad" if part < _IDLE else "busy" if part < _BUSY else "good")


def legend(nodes: Mapping[str, Node], usages: UsageByNode, tones: Tones) -> Text:
    """Return the meaning of the bars and the mean usage."""
    parts = [share(nodes[name], use) for name, use in usages.items() if name in nodes]
    measured = [part for part in parts if part is not None]
    mean = f"{sum(measured) / len(measured):.0%}" if measured else "-"
    line = Text(no_wrap=True, overflow="ellipsis").append(
        text("use.legend", count=len(measured), mean=mean), "bold"
    )
    for sign, tone, meaning in (("▁", "bad", "<10%"), ("▄", "busy", "<60%"), ("█", "good", "≥60%")):
        line.append(f"  {sign} {meaning}", tones[tone])
    return line


def numbers(use: NodeUsage) -> str:
    """Return `uses 93% of its GPUs, 500 GiB of their memory, 9.6 CPUs, 85 GiB`."""
    parts = []
    if use.HasField("gpu_utilisation"):
        parts.append(text("use.gpus", part=f"{use.gpu_utilisation:.0%}"))
        parts.append(text("use.gpu_memory", size=size_text(use.gpu_memory_bytes)))
    parts += [text("use.cpus", count=f"{use.cpus:.3g}"), size_text(use.memory_bytes)]
    return text("use.numbers", what=", ".join(parts))
