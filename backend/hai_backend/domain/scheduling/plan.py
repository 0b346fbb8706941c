"""The result of a scheduling pass: one decision with a reason for each task that changes or waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.priority import Priority


class WaitReason(StrEnum):
    """Why a task was not started; stable, shown to users."""

    OUT_OF_QUOTA = "OUT_OF_QUOTA"  # waits until its user's other tasks free some
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"  # can never start with today's quota
    OUT_OF_SHARE = "OUT_OF_SHARE"  # waits until others of its user group free some
    SHARE_EXCEEDED = "SHARE_EXCEEDED"  # can never start with today's limit of its user group
    NO_SUCH_GROUP = "NO_SUCH_GROUP"
    NO_SUCH_NODE = "NO_SUCH_NODE"
    GROUP_TOO_SMALL = "GROUP_TOO_SMALL"  # can never start with today's nodes
    NOT_ENOUGH_NODES = "NOT_ENOUGH_NODES"  # other tasks use them and cannot be preempted
    WAITING_FOR_PREEMPTED = (
        "WAITING_FOR_PREEMPTED"  # nodes are reserved; their tasks are being suspended
    )
    NODES_UNUSABLE = "NODES_UNUSABLE"  # cordoned or not ready
    HELD = "HELD"
    AFTER = "AFTER"  # waits for other tasks to end
    BACKING_OFF = "BACKING_OFF"
    INVALID = "INVALID"  # an invalid row; never stops the pass


@dataclass(frozen=True, slots=True)
class Start:
    """Start the task on these nodes, rank i on nodes[i]; all of them are free in the snapshot."""

    task: int
    nodes: tuple[str, ...]
    priority: Priority
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Suspend a running task, because `for_task` fits then."""

    task: int
    for_task: int
    reason: str
    higher: bool = (
        True  # `for_task` is of a higher level; False: of the same level, and it is its turn
    )


@dataclass(frozen=True, slots=True)
class Stop:
    """End a task that may not run any more (its user is inactive)."""

    task: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep the task in the queue. `place` is 1 for the next one of its group, 0 if it cannot be ranked."""

    task: int
    why: WaitReason
    message: str
    place: int = 0
    priority: Priority = Priority.AUTO  # effective level
    ahead: tuple[int, ...] = ()  # at most 20 tasks before it, in order


Decision = Start | Suspend | Stop | Wait


@dataclass(frozen=True, slots=True)
class Plan:
    """A proposal: the binder checks each decision again and may accept a part."""

    revision: int
    decisions: tuple[Decision, ...]
    wake_at: float | None = None  # time alone will change something then
