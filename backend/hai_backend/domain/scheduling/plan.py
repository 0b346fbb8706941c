"""The result of a scheduling pass: one decision with a reason for each task that changes or waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hai_backend.domain.priority import Priority


class WaitReason(StrEnum):
    """Why a task was not started. The values are stable and shown to users."""

    OUT_OF_QUOTA = "OUT_OF_QUOTA"  # waits until other tasks of its user free quota
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"  # can never start with the current quota
    OUT_OF_SHARE = "OUT_OF_SHARE"  # waits until other tasks of its user group free nodes
    SHARE_EXCEEDED = "SHARE_EXCEEDED"  # can never start with the current limit of its user group
    NO_SUCH_GROUP = "NO_SUCH_GROUP"
    NO_SUCH_NODE = "NO_SUCH_NODE"
    GROUP_TOO_SMALL = "GROUP_TOO_SMALL"  # can never start with the current nodes
    NOT_ENOUGH_NODES = "NOT_ENOUGH_NODES"  # other tasks use the nodes and cannot be preempted
    WAITING_FOR_PREEMPTED = (
        "WAITING_FOR_PREEMPTED"  # nodes are reserved; their tasks are being suspended
    )
    NODES_UNUSABLE = "NODES_UNUSABLE"  # nodes are cordoned or not ready
    HELD = "HELD"
    AFTER = "AFTER"  # waits for other tasks to end
    BACKING_OFF = "BACKING_OFF"
    INVALID = "INVALID"  # an invalid row; never stops the pass


@dataclass(frozen=True, slots=True)
class Start:
    """Start the task on these nodes, which are free in the snapshot. Rank i runs on nodes[i]."""

    task: int
    nodes: tuple[str, ...]
    priority: Priority
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Suspend a running task so that `for_task` fits."""

    task: int
    for_task: int
    reason: str
    higher: bool = True  # whether `for_task` has a higher level; otherwise both have the same level


@dataclass(frozen=True, slots=True)
class Stop:
    """End a task that may not run because its user is inactive."""

    task: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave the task in the queue. `place` is its position in its group from 1, or 0 if it has none."""

    task: int
    why: WaitReason
    message: str
    place: int = 0
    priority: Priority = Priority.AUTO  # effective level
    ahead: tuple[int, ...] = ()  # at most 20 tasks before it, in order


Decision = Start | Suspend | Stop | Wait


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of a pass, as a proposal: the binder checks each again and may accept only some."""

    revision: int
    decisions: tuple[Decision, ...]
    wake_at: float | None = None  # when the next pass is due even without a change
