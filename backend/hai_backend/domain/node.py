"""Nodes and node groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Labels = tuple[tuple[str, str], ...]
"""Pairs of name and value, sorted by name."""


class NodeState(StrEnum):
    READY = "READY"
    NOT_READY = "NOT_READY"


class NodeStatus(StrEnum):
    """Whether a node accepts new work, as shown to users."""

    READY = "READY"
    CORDONED = "CORDONED"  # ready, but closed for new work by operators or the launcher
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
    topology: tuple[str, ...] = ()  # leaf switch first, then wider domains
    reason: str = ""
    updated_at: float = 0.0
    labels: Labels = ()  # set by operators
    held: str = ""  # why the launcher closed the node for new work; not stored
    lift: str = (
        ""  # commands that end `held`, such as `kubectl uncordon n2`; empty if there are none
    )
    foreign: str = ""  # what other pods use, if it is more than the reserve; not stored
    mig: str = ""  # profile of the GPU slices that count as its GPUs; not stored

    @property
    def status(self) -> NodeStatus:
        """The status; a node that is both not ready and cordoned is NOT_READY."""
        if self.state is NodeState.NOT_READY:
            return NodeStatus.NOT_READY
        return NodeStatus.CORDONED if self.closed else NodeStatus.READY

    @property
    def usable(self) -> bool:
        return self.status is NodeStatus.READY

    @property
    def closed(self) -> bool:
        """Whether an operator or the launcher has closed the node for new work."""
        return self.cordoned or bool(self.held)

    @property
    def can_be_opened(self) -> bool:
        """Whether operators can open the node for new work, by uncordoning it here or in Kubernetes."""
        return self.status is NodeStatus.CORDONED and not (self.held and not self.lift)

    @property
    def why(self) -> str:
        """All reasons why the node is not ready, is closed for new work, or offers less than it has."""
        held = f"{self.held} ({self.lift})" if self.lift else self.held
        return "; ".join(filter(None, (self.reason, held, self.foreign)))


@dataclass(frozen=True, slots=True)
class Group:
    """Settings of a node group."""

    name: str
    packed: bool = False
    policy: str = ""  # JSON of the settings of the group (scheduler.policy.group_policy)
