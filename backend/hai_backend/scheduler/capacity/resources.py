"""Amounts of a node's parts: what it has, what a rank takes of it, and how the two are counted."""

from __future__ import annotations

from collections.abc import Mapping

from hai_backend.domain.node import Node

Amount = tuple[int, int, int]
"""GPUs, cpus, bytes of memory."""


GB = 1 << 30


UNLIMITED = 10**18
"""Stands for cpus or memory that a node does not declare: they limit nobody."""


def size_of(node: Node) -> Amount:
    """What a node has; what it does not declare limits nobody, except GPUs."""
    return (node.gpus, node.cpus or UNLIMITED, node.memory_bytes or UNLIMITED)


def ask_of(gpu: int, cpu: int, memory_gb: int, *, packed: bool) -> Amount | None:
    """What a rank takes of a node; None: all of it."""
    if not packed or not (gpu or cpu or memory_gb):
        return None
    return (max(0, gpu), max(0, cpu), max(0, memory_gb) * GB)


def covers(have: Amount, ask: Amount) -> bool:
    """True when `ask` fits into `have`."""
    return have[0] >= ask[0] and have[1] >= ask[1] and have[2] >= ask[2]


def minus(have: Amount, ask: Amount) -> Amount:
    """What is left of `have` when `ask` is taken."""
    return (have[0] - ask[0], have[1] - ask[1], have[2] - ask[2])


def plus(have: Amount, back: Amount) -> Amount:
    """What is there when `back` is given back."""
    return (have[0] + back[0], have[1] + back[1], have[2] + back[2])


def ranks_in(have: Amount, ask: Amount) -> int:
    """How many ranks that ask for a part of a node fit into what is there."""
    gpus, cpus, memory = ask
    most = have[0] // gpus if gpus else UNLIMITED
    if cpus:
        most = min(most, have[1] // cpus)
    if memory:
        most = min(most, have[2] // memory)
    return max(0, most)


def ranks_among(rooms: Mapping[Amount, int], ask: Amount) -> int:
    """How many fit into many rooms, of which each is there so many times; most have too few GPUs."""
    least = ask[0] or -UNLIMITED
    return sum(n * ranks_in(room, ask) for room, n in rooms.items() if room[0] >= least)
