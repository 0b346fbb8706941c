"""Machines and the pools that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Labels = tuple[tuple[str, str], ...]
"""Names and values, by name."""


class NodeState(StrEnum):
    READY = "READY"
    NOT_READY = "NOT_READY"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, or a part of one that the configuration declares to be a node."""

    name: str
    group: str = "default"
    zone: str = ""
    state: NodeState = NodeState.READY
    cordoned: bool = False
    gpus: int = 0
    gpus_simulated: bool = False
    cpus: int = 0
    memory_bytes: int = 0
    topology: tuple[str, ...] = ()  # leaf switch first, then wider
    reason: str = ""
    updated_at: float = 0.0
    labels: Labels = ()  # what operators have noted
    held: str = ""  # why the launcher wants nothing new there; never stored: it says so again
    mig: str = ""  # profile of the slices that count as its GPUs, if they do; never stored, too

    @property
    def usable(self) -> bool:
        return self.state is NodeState.READY and not self.cordoned and not self.held


@dataclass(frozen=True, slots=True)
class Group:
    """Settings of a node group."""

    name: str
    packed: bool = False
    policy: str = ""  # JSON of what it sets itself (sched.group_policy); empty: as the server's
