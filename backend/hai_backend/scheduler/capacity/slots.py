"""What a pool is made of: spots (usable nodes), kinds of them, who holds them, and what others need of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from hai_backend.domain.scheduling.snapshot import SchedTask
from hai_backend.scheduler.capacity.resources import Amount
from hai_backend.scheduler.queue.rating import Rating

SEVERAL = -1


class Grip(IntEnum):
    """How firmly a task, or a node's firmest holder, keeps a node."""

    EMPTY = 0
    LEAVING = 1  # asked to go
    HELD = 2


@dataclass(slots=True, eq=False)
class Holder:
    """A task on its nodes. Without a worth it is to be left alone: it is being started, or its row is bad."""

    task: SchedTask
    grip: Grip
    worth: Rating | None = None
    ask: Amount | None = None  # of each rank; None: whole nodes
    units: int = 0  # what all of it weighs against a quota
    wanted_by: int = 0  # LEAVING: the task that it leaves for
    spots: list[Slot] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Kind:
    """Nodes of one zone and size: equal to every task that names no node."""

    zone: str
    size: Amount
    packed: bool
    open: dict[int, dict[Slot, None]]  # of the pool
    shared: bool = False  # some node has or had more than one holder
    empty: int = 0
    empties: dict[tuple[str, ...], list[Slot]] = field(default_factory=dict)  # by topology and name
    leaving: int = 0
    leavings: dict[int, list[Slot]] = field(default_factory=dict)  # by claim and name
    spots: dict[Slot, None] = field(default_factory=dict)
    free: dict[Amount, int] = field(default_factory=dict)  # how many nodes have so much free now
    soon: dict[Amount, int] = field(default_factory=dict)  # once everybody who leaves has left


@dataclass(slots=True, eq=False)
class Slot:
    """A usable node. `grip` is that of its firmest holder."""

    name: str
    kind: Kind
    place: tuple[str, ...]
    free: Amount  # now
    soon: Amount  # once everybody who leaves has left
    holders: list[Holder] = field(default_factory=list)
    grip: Grip = Grip.EMPTY
    claim: int = 0  # while it is being left: the task that it is left for; 0: nobody; SEVERAL

    def taken_by(self, holder: Holder) -> Amount:
        """What one rank of a holder takes of this node."""
        return self.kind.size if holder.ask is None else holder.ask


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What a task asks for of each node. Equal tasks of a group share one value, so identity tells needs apart."""

    count: int
    whole: bool = True
    ask: Amount = (0, 0, 0)
    zone: str = ""
    only: tuple[str, ...] = ()
    units: int = 0  # what it weighs against a quota (quota.UNIT a node)
    spread: bool = False  # to the least loaded nodes; else to the fullest that have room
