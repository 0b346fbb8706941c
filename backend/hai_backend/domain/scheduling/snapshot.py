"""The input of a scheduling pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hai_backend.domain.node import Group, Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Suspension
from hai_backend.domain.spec import TaskType


class SchedulingState(StrEnum):
    """What the scheduler may do with a task."""

    QUEUED = "QUEUED"  # the task may be started
    RUNNING = "RUNNING"  # the task uses nodes and may be suspended
    LEAVING = "LEAVING"  # the task uses nodes, and is being suspended or started


@dataclass(frozen=True, slots=True)
class SchedTask:
    """The facts about an unfinished task that scheduling depends on. Times are seconds since the epoch."""

    id: int
    user: str
    group: str
    node_count: int
    priority: Priority  # as requested; may be AUTO
    created_at: float
    standing: SchedulingState = SchedulingState.QUEUED
    zone: str = ""
    custom_rank: float = 0.0
    task_type: TaskType = TaskType.TRAINING
    gpu: int = 0  # per rank; a rank uses the whole node if gpu, cpu and memory are 0
    cpu: int = 0
    memory: int = 0  # GB
    spot: bool = False  # runs only on nodes that others leave free, and is preempted first
    held: bool = False
    not_before: float = 0.0
    awaited: tuple[int, ...] = ()  # tasks that must end first
    assigned_nodes: tuple[str, ...] = ()  # the task must run on exactly these nodes
    # nodes that the task uses; nodes of finished ranks are released early
    placed: tuple[str, ...] = ()
    run_priority: Priority = Priority.AUTO  # level at which the current run was started
    run_started_at: float | None = None
    saved_at: float | None = None  # last checkpoint that the program reported
    leaves_free: bool = (
        True  # if LEAVING: whether the nodes become free; False if the task is being started
    )
    suspended_for: int = 0  # if LEAVING: the task for which it is suspended
    run_seconds: float = 0.0  # of all earlier runs
    name: str = ""  # shared with similar tasks
    waiting_since: float | None = None  # start of the last wait; None if that is the submission
    suspensions: tuple[Suspension, ...] = ()  # of the last day, by the scheduler; oldest first
    yields: bool = False  # whether the program saves when it is asked to leave
    restart_seconds: float | None = None  # measured cost of suspending and starting again
    save_seconds: float = 0.0  # longest time of its last saves; 0 if unknown
    lost_seconds: float = 0.0  # work of earlier runs that no checkpoint has saved
    unsaved_suspensions: int = 0  # in a row, of runs that had saved nothing


@dataclass(frozen=True, slots=True)
class Ending:
    """A task that has ended, and its time on nodes over all runs. The scheduler learns run times from these."""

    task: SchedTask
    seconds: float


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """The nodes that `user` may use in `group` at `priority`, or at all levels for AUTO.

    Quotas of the user's groups are included.
    """

    user: str
    group: str
    priority: Priority
    nodes: int


@dataclass(frozen=True, slots=True)
class ShareRow:
    """The share of node group `group` that `users` have together. See domain.accounts.user.Share."""

    name: str
    group: str
    users: frozenset[str]
    guaranteed: int = 0
    weight: int = 0
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent state of the cluster at `now`."""

    now: float
    nodes: tuple[Node, ...]
    tasks: tuple[SchedTask, ...]
    groups: Mapping[str, Group] = field(default_factory=dict)
    quotas: tuple[QuotaRow, ...] = ()
    inactive_users: frozenset[str] = frozenset()
    revision: int = 0
    endings: tuple[Ending, ...] = ()  # the known history, oldest first
    shares: tuple[ShareRow, ...] = ()  # a user is in at most one share per group
