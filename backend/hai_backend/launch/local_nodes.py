"""Divides this machine into the nodes that the settings declare, with equal parts of its CPUs, memory and GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from hai_backend.domain.node import Node
from hai_backend.launch import nvml

DEFAULT_NODES = 4
"""Nodes of a machine without GPUs, so that a laptop shows how tasks share a cluster."""


class Layout(Protocol):
    """The nodes that the settings declare. The server's Settings have these fields."""

    @property
    def nodes(self) -> int: ...
    @property
    def gpus_per_node(self) -> int: ...
    @property
    def groups(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node with the indices of the real GPUs of this machine that belong to it."""

    node: Node
    gpu_indices: tuple[int, ...] = ()


def divide(layout: Layout, gpus: int) -> tuple[LocalNode, ...]:
    """Divide this machine into equal nodes, node1 to nodeN.

    Real GPUs are assigned to the nodes in order, the same number to each. If there are fewer GPUs than nodes, the nodes
    without a GPU are in the group `cpu`, unless the settings name the groups: a task that needs a GPU never starts on a
    node without one. Without real GPUs, the nodes have the declared number of simulated GPUs.
    """
    groups = [group for group, count in layout.groups.items() for _ in range(count)]
    if not layout.groups:
        count = layout.nodes or (1 if gpus else DEFAULT_NODES)
        with_gpus = min(gpus, count) if gpus else count
        groups = ["default"] * with_gpus + ["cpu"] * (count - with_gpus)
    count = max(len(groups), 1)
    gpus_each = gpus // count if gpus >= count else int(gpus > 0)
    return tuple(
        _node(
            i,
            group,
            count,
            tuple(range(i * gpus_each, min((i + 1) * gpus_each, gpus))),
            layout,
            gpus,
        )
        for i, group in enumerate(groups)
    )


def packed_groups(nodes: Iterable[LocalNode]) -> frozenset[str]:
    """Return the groups whose nodes have several real GPUs, so that tasks of one GPU run side by side on a node."""
    return frozenset(n.node.group for n in nodes if len(n.gpu_indices) > 1)


def _node(
    i: int, group: str, count: int, indices: tuple[int, ...], layout: Layout, gpus: int
) -> LocalNode:
    node = Node(
        name=f"node{i + 1}",
        group=group,
        gpus=len(indices) if gpus else layout.gpus_per_node,
        gpus_simulated=not gpus and layout.gpus_per_node > 0,
        cpus=max(1, (os.cpu_count() or 1) // count),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // count,
    )
    return LocalNode(node, indices)


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine; 0 if it has none or no driver."""
    return nvml.count()
