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

    QUEUED = "QUEUED"  # may be started
    RUNNING = "RUNNING"  # uses nodes, may be suspended
    LEAVING = "LEAVING"  # uses nodes, is being suspended or started: must not be changed


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
    gpu: int = 0  # per rank; 0 with cpu and memory 0: the whole node
    cpu: int = 0
    memory: int = 0  # GB
    spot: bool = False  # runs on nodes that others leave free, and is preempted first
    held: bool = False
    not_before: float = 0.0
    awaited: tuple[int, ...] = ()  # tasks that have to end first
    assigned_nodes: tuple[str, ...] = ()  # must run on exactly these
    # nodes that it uses; nodes of finished ranks are released early
    placed: tuple[str, ...] = ()
    run_priority: Priority = Priority.AUTO  # level at which the current run was started
    run_started_at: float | None = None
    saved_at: float | None = None  # last checkpoint that the program reported
    leaves_free: bool = True  # LEAVING only: its nodes become free (False: it is being started)
    suspended_for: int = 0  # LEAVING only: the task that it is suspended for
    run_seconds: float = 0.0  # over earlier runs
    name: str = ""  # shared with similar tasks
    waiting_since: float | None = None  # begin of its last wait; None: since it was submitted
    suspensions: tuple[Suspension, ...] = ()  # of the last day, by the scheduler; oldest first
    yields: bool = False  # its program saves when it is asked to suspend
    restart_seconds: float | None = None  # measured cost of suspending and starting again
    lost_seconds: float = 0.0  # work of earlier runs that no checkpoint has saved


@dataclass(frozen=True, slots=True)
class Ending:
    """A task that has ended, and its time on nodes over all runs. The scheduler learns run times from these."""

    task: SchedTask
    seconds: float


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """Nodes that `user` may use in `group` at `priority` (AUTO: at all levels); quotas of groups are merged in."""

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
    shares: tuple[ShareRow, ...] = ()  # a user is in at most one per group
