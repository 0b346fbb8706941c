"""Resource vectors: what a node has, what a rank takes of it, and the arithmetic of both."""

from __future__ import annotations

from collections.abc import Mapping

from hai_backend.domain.node import Node

Resources = tuple[int, int, int]
"""GPUs, cpus, bytes of memory."""

GB = 1 << 30

UNLIMITED = 10**18
"""Stands for cpus or memory that a node does not declare: they limit nobody."""


def size_of(node: Node) -> Resources:
    """What a node has. Cpus and memory that it does not declare limit nobody."""
    return (node.gpus, node.cpus or UNLIMITED, node.memory_bytes or UNLIMITED)


def requested_resources(gpu: int, cpu: int, memory_gb: int, *, packed: bool) -> Resources | None:
    """What a rank takes of a node; None: all of it."""
    if not packed or not (gpu or cpu or memory_gb):
        return None
    return (max(0, gpu), max(0, cpu), max(0, memory_gb) * GB)


def covers(have: Resources, resources: Resources) -> bool:
    """True when `resources` fit into `have`."""
    return have[0] >= resources[0] and have[1] >= resources[1] and have[2] >= resources[2]


def minus(have: Resources, used: Resources) -> Resources:
    """`have` less `used`."""
    return (have[0] - used[0], have[1] - used[1], have[2] - used[2])


def plus(have: Resources, back: Resources) -> Resources:
    """`have` and `back` together."""
    return (have[0] + back[0], have[1] + back[1], have[2] + back[2])


def ranks_in(have: Resources, resources: Resources) -> int:
    """How many ranks that request a part of a node fit into `have`."""
    gpus, cpus, memory = resources
    most = have[0] // gpus if gpus else UNLIMITED
    if cpus:
        most = min(most, have[1] // cpus)
    if memory:
        most = min(most, have[2] // memory)
    return max(0, most)


def ranks_among(free_counts: Mapping[Resources, int], resources: Resources) -> int:
    """How many ranks fit on nodes, counted by what they have free. Most have too few GPUs."""
    least = resources[0] or -UNLIMITED
    return sum(n * ranks_in(free, resources) for free, n in free_counts.items() if free[0] >= least)
