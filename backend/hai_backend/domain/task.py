"""A task with its current run and the ranks of that run. All of it is written in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntFlag, StrEnum

from hai_backend.domain.priority import Priority
from hai_backend.domain.progress import Progress
from hai_backend.domain.spec import TaskSpec


class TaskState(StrEnum):
    WAITING_INIT = "WAITING_INIT"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    FINISHED = "FINISHED"


class Outcome(StrEnum):
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    CANCELED = "CANCELED"


class RunState(StrEnum):
    CREATED = "CREATED"
    BUILDING = "BUILDING"
    RUNNING = "RUNNING"
    SUSPENDING = "SUSPENDING"
    STOPPING = "STOPPING"
    TERMINATING = "TERMINATING"
    ENDED = "ENDED"


class RankState(StrEnum):
    CREATED = "CREATED"
    BUILDING = "BUILDING"
    UNSCHEDULABLE = "UNSCHEDULABLE"
    RUNNING = "RUNNING"
    SUCCEEDED_TERMINATING = "SUCCEEDED_TERMINATING"
    FAILED_TERMINATING = "FAILED_TERMINATING"
    STOPPED_TERMINATING = "STOPPED_TERMINATING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def terminated(self) -> bool:
        """Whether nothing of the rank exists any more, so that its node is free."""
        return self in _TERMINATED


_TERMINATED = frozenset({RankState.SUCCEEDED, RankState.FAILED, RankState.STOPPED})


class StopCode(IntFlag):
    """Why a run ended: the bits of HAI, and NODE_FAILURE."""

    NONE = 0
    STOP = 1
    INTERRUPT = 16
    UNSCHEDULABLE = 32
    FAILED = 128
    INIT_FAILED = 256
    TIMEOUT = 512
    MANUAL_STOP = 1024
    HOOK_RESTART = 2048
    MANUAL_SUCCEEDED = 4096
    MANUAL_FAILED = 8192
    NODE_FAILURE = 16384


@dataclass(frozen=True, slots=True)
class Rank:
    """One process group of a run, on one node."""

    index: int
    node: str
    state: RankState = RankState.CREATED
    role: str = ""
    address: str = ""
    free_port: int = 0
    exit_code: int | None = None
    last_lines: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    gpus: tuple[int, ...] = ()  # indices of its GPUs within the node
    silent_since: float | None = None  # the last message of its agent, while the agent is silent
    # what its program has saved since it was asked to leave, and the size of its state; 0 unless it saves now
    saved_bytes: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a task on nodes. `deadline` is when the next Ticked event is due, or None."""

    number: int
    state: RunState
    ranks: tuple[Rank, ...]
    created_at: float
    priority: Priority
    whole_life_state: int = 0
    stop_code: StopCode = StopCode.NONE
    reason: str = ""
    suspended_for: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    deadline: float | None = None
    asked_at: float | None = None  # when the run was asked to save and leave
    acknowledged_at: float | None = None  # when its program noticed that
    yielded: bool = False  # whether the program has reported that it has saved
    environment_lock: str = ""  # lock hash of the environment that its programs were started in
    killed_at: float | None = None  # when its ranks were first killed
    load_seconds: float | None = None  # in which its program loaded a checkpoint; None if unknown
    save_seconds: float | None = None  # for which work stood still for its last checkpoint
    write_seconds: float | None = None  # in which its last staged checkpoint was written to disk

    @property
    def saved_bytes(self) -> int:
        """The bytes that its programs have saved since they were asked to leave."""
        return sum(rank.saved_bytes for rank in self.ranks)

    @property
    def state_bytes(self) -> int:
        """The bytes of the states that its programs save now; 0 if none saves."""
        return sum(rank.state_bytes for rank in self.ranks)


@dataclass(frozen=True, slots=True)
class Task:
    """A submitted task with any number of runs. Times are seconds since the epoch."""

    id: int
    user: str
    spec: TaskSpec
    state: TaskState
    priority: Priority
    created_at: float
    custom_rank: float = 0.0
    tags: tuple[str, ...] = ()
    starred: bool = False
    whole_life_state: int = 0
    outcome: Outcome | None = None
    wanted_outcome: Outcome | None = None  # requested by a person, while the run has not ended yet
    reason: str = ""
    held: bool = False
    not_before: float = 0.0
    suspend_count: int = 0
    failure_count: int = 0
    node_failure_count: int = 0
    launch_failure_count: int = 0
    run_seconds: float = 0.0  # of all ended runs
    started_at: float | None = None
    finished_at: float | None = None
    run: Run | None = None  # current or last
    revision: int = 0  # increased by every write; a write with another revision is rejected
    version: int = 0  # position in the stream of changes; set by the store
    progress: Progress = Progress()
    awaited: tuple[int, ...] = ()  # tasks of options.after that have not ended yet

    @property
    def node_count(self) -> int:
        return self.spec.resource.node_count

    @property
    def waiting(self) -> bool:
        return self.state in (TaskState.WAITING_INIT, TaskState.SUSPENDED)

    @property
    def needs_nodes(self) -> bool:
        """Whether the task waits for nodes, and not for other tasks or its user."""
        return self.waiting and not (self.held or self.awaited)


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One entry of a task's timeline."""

    time: float
    actor: str
    kind: str
    reason: str = ""
    run: int = 0
    rank: int = -1


def holders(tasks: Iterable[Task]) -> Iterator[tuple[Task, Run, Rank]]:
    """Yield every rank that occupies a node, with its task and run."""
    for task in tasks:
        if task.run is not None and not task.waiting:
            for rank in task.run.ranks:
                if not rank.state.terminated:
                    yield task, task.run, rank
