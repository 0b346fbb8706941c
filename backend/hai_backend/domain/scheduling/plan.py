"""What the scheduler answers: one decision per task that changes or waits, each with its reason."""

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
    NOT_ENOUGH_NODES = "NOT_ENOUGH_NODES"  # others hold them, and may keep them
    WAITING_FOR_PREEMPTED = "WAITING_FOR_PREEMPTED"  # nodes are promised; the victims are leaving
    NODES_UNUSABLE = "NODES_UNUSABLE"  # cordoned or not ready
    HELD = "HELD"
    AFTER = "AFTER"  # others have to end first
    BACKING_OFF = "BACKING_OFF"
    INVALID = "INVALID"  # a bad row; never stops the pass


@dataclass(frozen=True, slots=True)
class Start:
    """Start the task on these nodes, rank i on nodes[i]; all of them are free in the snapshot."""

    task: int
    nodes: tuple[str, ...]
    priority: Priority
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Ask a running task to leave, because `for_task` then really fits."""

    task: int
    for_task: int
    reason: str
    higher: bool = True  # it is of a higher level; False: an equal whose turn it is


@dataclass(frozen=True, slots=True)
class Stop:
    """End a task that may not run any more (its user is inactive)."""

    task: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave the task in the queue. `place` is 1 for the next in its group, 0 when it cannot be ranked."""

    task: int
    why: WaitReason
    message: str
    place: int = 0
    priority: Priority = Priority.AUTO  # effective level
    ahead: tuple[int, ...] = ()  # at most 20 tasks before it, in order


Decision = Start | Suspend | Stop | Wait


@dataclass(frozen=True, slots=True)
class Plan:
    """A proposal: whoever applies it checks each decision again and may accept a part."""

    revision: int
    decisions: tuple[Decision, ...]
    wake_at: float | None = None  # time alone will change something then
