"""Divides this machine into the nodes that the settings declare, with equal parts of its CPUs, memory and GPUs."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hai_backend.domain.node import Node


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
    """Return equal nodes with the names node1, node2 and so on. `gpus` is the number of real GPUs of this machine.

    Real GPUs are assigned in order. If there are none, the declared GPUs are simulated.
    """
    groups = [g for g, n in (layout.groups or {"default": layout.nodes}).items() for _ in range(n)]
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
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0  # this avoids the import below
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
