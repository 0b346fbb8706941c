"""Columns of nodes, groups and settings, and the tree of groups, zones and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hai.client.text.formatting import enum_name
from hai.v1.node_pb2 import Group, Node, NodeState
from hai.v1.policy_pb2 import GroupEffect, TaskChanges
from hai_tui.formatting.table import Column, View, printable
from hai_tui.i18n import text
from hai_tui.views import gpus
from hai_tui.views.node_labels import labels_text
from hai_tui.views.policy import settings_text
from hai_tui.views.silent_agents import node_silence_texts

_STYLES = {"READY": "green", "CORDONED": "magenta", "NOT_READY": "red"}


def node_status(node: Node) -> str:
    """Return READY, NOT_READY, or CORDONED for a ready node that takes no work."""
    state = enum_name(NodeState, node.state)
    return "CORDONED" if node.cordoned and state == "READY" else state


def _gpu_text(node: Node) -> str:
    simulated = "simulated" if node.gpus_simulated else ""
    kind = node.mig_profile or simulated or gpus.model_text(node.gpu_devices)
    return f"{node.gpus} ({kind})" if node.gpus and kind else str(node.gpus)


def _memory_text(node: Node) -> str:
    return f"{node.memory_bytes / 2**30:.0f}G" if node.memory_bytes else "-"


def _tenants_text(node: Node) -> str:
    return ", ".join(f"{t.task_id} {t.task_name} ({t.user})" for t in node.tenants) or "-"


def _reason_text(node: Node, now: float) -> str:
    return "; ".join(filter(None, (node.reason, *node_silence_texts(node, now)))) or "-"


NODES = View(
    key="nodes",
    name=lambda node: node.name,
    empty="none.nodes",
    columns=(
        Column("node", lambda n, now: n.name),
        Column("status", lambda n, now: node_status(n), style=lambda s: _STYLES.get(s, "")),
        Column("group", lambda n, now: n.group + (f"#{n.zone}" if n.zone else "")),
        Column("gpus", lambda n, now: _gpu_text(n), right=True),
        Column("gpu_use", lambda n, now: gpus.use_text(n.gpu_devices), optional=True),
        Column("cpus", lambda n, now: str(n.cpus), right=True),
        Column("memory", lambda n, now: _memory_text(n), right=True),
        Column("tasks", lambda n, now: _tenants_text(n), folds=True),
        Column("reason", lambda n, now: _reason_text(n, now), folds=True),
        Column("labels", lambda n, now: labels_text(n) or "-", wide=True, folds=True),
        Column("topology", lambda n, now: "/".join(n.topology) or "-", wide=True),
    ),
)

GROUPS = View(
    key="groups",
    name=lambda group: group.name,
    empty="none.groups",
    columns=(
        Column("group", lambda g, now: g.name),
        Column("nodes", lambda g, now: str(g.nodes), right=True),
        Column("usable", lambda g, now: str(g.usable_nodes), right=True),
        Column("free", lambda g, now: str(g.free_nodes), right=True),
        Column("waiting", lambda g, now: str(g.waiting_tasks), right=True),
        Column("packed", lambda g, now: "yes" if g.packed else "no"),
        Column("policy", lambda g, now: _policy_text(g), wide=True, folds=True),
    ),
)

CHANGED_GROUP = replace(GROUPS, columns=tuple(replace(c, wide=False) for c in GROUPS.columns))
"""The columns after a change: all of them, so that the answer shows what was set."""

SETTINGS = View(
    key="settings",
    name=lambda setting: setting.name,
    columns=(
        Column("setting", lambda s, now: s.name),
        Column("value", lambda s, now: s.value, folds=True),
        Column("from", lambda s, now: s.origin),
    ),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A scheduling setting in force. `origin` says whether the group or the server sets it."""

    name: str
    value: str
    origin: str


def settings_in_force(group: Group) -> list[Setting]:
    """Return all scheduling settings that apply to a group."""
    group_settings = settings_text(group.policy)
    return [
        Setting(name, value, text("from.group" if name in group_settings else "from.server"))
        for name, value in settings_text(group.policy_in_force).items()
    ]


def _policy_text(group: Group) -> str:
    return " ".join(f"{n}={v}" for n, v in settings_text(group.policy).items()) or "-"


def effect_lines(effect: GroupEffect) -> Iterable[str]:
    """Yield sentences about what the next scheduling pass would do differently."""
    for kind in ("starts", "delayed", "suspended", "spared"):
        changes = getattr(effect, kind)
        if changes.count:
            yield f"{text(f'preview.{kind}')} ({changes.count}): {_task_names(changes)}"
    if effect.moved:
        yield text("preview.moved", moved=effect.moved, waiting=effect.waiting)


def _task_names(changes: TaskChanges) -> str:
    names = [f"{t.task_id} {t.task_name} ({t.user})" for t in changes.tasks]
    return ", ".join(names) + (", …" if changes.count > len(names) else "")


def tree_text(nodes: Sequence[Node], now: float) -> str:
    """Return the groups, their zones, the nodes in them, and the tasks on each node."""
    lines: list[str] = []
    previous: tuple[str, str] = ("", "")
    for node in sorted(nodes, key=lambda n: (n.group, n.zone, n.name)):
        lines += _headings(previous, node)
        lines.append(("    " if node.zone else "  ") + f"{node.name}  {_summary(node, now)}")
        previous = (node.group, node.zone)
    return "".join(f"{printable(line)}\n" for line in lines)


def _headings(previous: tuple[str, str], node: Node) -> Iterable[str]:
    if node.group != previous[0]:
        yield node.group
    if node.zone and (node.group, node.zone) != previous:
        yield f"  {node.zone}"


def _summary(node: Node, now: float) -> str:
    parts = [node_status(node)]
    if node.gpus:
        parts.append(f"{_gpu_text(node)} {'GPU' if node.gpus == 1 else 'GPUs'}")
    return "  ".join([*parts, _tenants_text(node), *node_silence_texts(node, now)])
