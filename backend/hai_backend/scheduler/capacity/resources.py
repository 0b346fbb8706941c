"""Resource vectors: what a node has, what a rank uses of it, and the arithmetic of both."""

from __future__ import annotations

from collections.abc import Mapping

from hai_backend.domain.node import Node

Resources = tuple[int, int, int]
"""GPUs, cpus, bytes of memory."""

GB = 1 << 30

UNLIMITED = 10**18
"""Stands for the cpus or memory of a node that does not declare them, so that they limit no task."""


def size_of(node: Node) -> Resources:
    """Return what a node has."""
    return (node.gpus, node.cpus or UNLIMITED, node.memory_bytes or UNLIMITED)


def requested_resources(gpu: int, cpu: int, memory_gb: int, *, packed: bool) -> Resources | None:
    """Return what a rank uses of a node; None for a whole node."""
    if not packed or not (gpu or cpu or memory_gb):
        return None
    return (max(0, gpu), max(0, cpu), max(0, memory_gb) * GB)


def covers(free: Resources, needed: Resources) -> bool:
    """Return whether `needed` fits into `free`."""
    return free[0] >= needed[0] and free[1] >= needed[1] and free[2] >= needed[2]


def minus(a: Resources, b: Resources) -> Resources:
    """Return `a` - `b`."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


def plus(a: Resources, b: Resources) -> Resources:
    """Return `a` + `b`."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def ranks_in(free: Resources, per_rank: Resources) -> int:
    """Return how many ranks fit into `free`."""
    gpus, cpus, memory = per_rank
    most = free[0] // gpus if gpus else UNLIMITED
    if cpus:
        most = min(most, free[1] // cpus)
    if memory:
        most = min(most, free[2] // memory)
    return max(0, most)


def ranks_among(free_counts: Mapping[Resources, int], per_rank: Resources) -> int:
    """Return how many ranks fit on nodes, which are counted by their free resources."""
    least = per_rank[0] or -UNLIMITED  # a quick check first: most nodes have too few free GPUs
    return sum(n * ranks_in(free, per_rank) for free, n in free_counts.items() if free[0] >= least)
