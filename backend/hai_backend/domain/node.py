"""Machines and the pools that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Labels = tuple[tuple[str, str], ...]
"""Names and values, by name."""


class NodeState(StrEnum):
    READY = "READY"
    NOT_READY = "NOT_READY"


class NodeStatus(StrEnum):
    """Whether a node takes new work, as every answer says and counts it."""

    READY = "READY"
    CORDONED = "CORDONED"  # it is ready, but operators or the launcher want nothing new there
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
    lift: str = ""  # what operators do about `held`, as `kubectl uncordon n2`; empty: it passes, or more than that
    foreign: str = ""  # what pods that are not ours hold of it, if that is much; never stored, too
    mig: str = ""  # profile of the slices that count as its GPUs, if they do; never stored, too

    @property
    def status(self) -> NodeStatus:
        """What stands first in the way of new work; a node that is not ready is so whether it is cordoned or not."""
        if self.state is NodeState.NOT_READY:
            return NodeStatus.NOT_READY
        return NodeStatus.CORDONED if self.closed else NodeStatus.READY

    @property
    def usable(self) -> bool:
        return self.status is NodeStatus.READY

    @property
    def closed(self) -> bool:
        """Whether somebody wants nothing new there: an operator, or the launcher."""
        return self.cordoned or bool(self.held)

    @property
    def can_be_opened(self) -> bool:
        """Whether it would take new work if operators lifted what they, or others in Kubernetes, have set."""
        return self.status is NodeStatus.CORDONED and not (self.held and not self.lift)

    @property
    def why(self) -> str:
        """Why it is not ready or takes nothing new, or less than it has; all reasons together."""
        held = f"{self.held} ({self.lift})" if self.lift else self.held
        return "; ".join(filter(None, (self.reason, held, self.foreign)))


@dataclass(frozen=True, slots=True)
class Group:
    """Settings of a node group."""

    name: str
    packed: bool = False
    policy: str = (
        ""  # JSON of what it sets itself (scheduler.policy.group_policy); empty: as the server's
    )
