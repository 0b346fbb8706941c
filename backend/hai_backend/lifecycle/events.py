"""The events of tasks. A request may be repeated without error.

Events of a run carry its number, so that a late event of an earlier run changes nothing. The class names are the kinds
of events in timelines, which clients read.
"""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Outcome

# Requests of people and of the scheduler.


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Stop the task. `outcome` is SUCCEEDED, FAILED, or None for STOPPED (CANCELED if the task never ran)."""

    by: str
    outcome: Outcome | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SuspendAsked:
    """Leave the nodes. With `hold`, the task waits until ResumeAsked; with `delay`, for so many seconds."""

    by: str
    reason: str
    for_task: int = 0
    hold: bool = False
    delay: float = 0.0
    higher: bool = False  # whether `for_task` has a higher level


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    by: str


@dataclass(frozen=True, slots=True)
class PredecessorEnded:
    """A dependency has ended. `awaited` are the tasks that it still depended on when it ended without having run."""

    task: int
    outcome: Outcome
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lifetime of a dev container begins again."""

    by: str


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    by: str
    priority: Priority


@dataclass(frozen=True, slots=True)
class Moved:
    by: str
    custom_rank: float


@dataclass(frozen=True, slots=True)
class Labelled:
    by: str
    tags: tuple[str, ...]
    starred: bool


@dataclass(frozen=True, slots=True)
class RunPlaced:
    """Rank i runs on nodes[i], with the GPUs gpus[i] of that node."""

    nodes: tuple[str, ...]
    priority: Priority
    reason: str
    gpus: tuple[tuple[int, ...], ...] = ()


# From the launcher.


@dataclass(frozen=True, slots=True)
class RunLaunched:
    run: int


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    run: int
    rank: int
    reason: str
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class RankGone:
    """Nothing of the rank exists any more. `why` says what ended the rank, if the platform did not."""

    run: int
    rank: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The node is unreachable. Its programs may continue, so RankGone follows when the launcher is sure."""

    run: int
    rank: int
    reason: str


# From agents.


@dataclass(frozen=True, slots=True)
class RankAttached:
    run: int
    rank: int
    address: str
    free_port: int


@dataclass(frozen=True, slots=True)
class ProgramStarted:
    """`environment_lock` is the lock hash of the environment of the program, or empty if it has none."""

    run: int
    rank: int
    environment_lock: str = ""


@dataclass(frozen=True, slots=True)
class StartFailed:
    run: int
    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class SuspendAcknowledged:
    run: int
    rank: int


@dataclass(frozen=True, slots=True)
class SaveProgressed:
    """The program saves after it was asked to leave. `total_bytes` is 0 if it does not save any more."""

    run: int
    rank: int
    saved_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointLost:
    """A checkpoint was lost with the memory of a node. `resumed_step` is None if the program begins anew."""

    run: int
    rank: int
    step: int
    node: str
    resumed_step: int | None


@dataclass(frozen=True, slots=True)
class CheckpointLoaded:
    """The program has loaded its state, which took `seconds`."""

    run: int
    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Yielded:
    run: int
    rank: int


@dataclass(frozen=True, slots=True)
class ProgramExited:
    run: int
    rank: int
    exit_code: int
    last_lines: str = ""
    yielded: bool = False


@dataclass(frozen=True, slots=True)
class WatchdogFired:
    run: int
    rank: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class NodeReported:
    """The program reports its node as broken."""

    run: int
    rank: int
    error: str


@dataclass(frozen=True, slots=True)
class WholeLifeStateChanged:
    run: int
    rank: int
    value: int


# From controllers/cluster/heartbeat_monitor.py.


@dataclass(frozen=True, slots=True)
class AgentSilent:
    """The agent has sent nothing for `Timing.silent_after` seconds. `since` is the time of its last message."""

    run: int
    rank: int
    since: float


@dataclass(frozen=True, slots=True)
class AgentHeard:
    """A silent agent has sent a message again."""

    run: int
    rank: int


# From the clock.


@dataclass(frozen=True, slots=True)
class Ticked:
    """The deadline of the run may have passed. `passed` is a deadline that has passed by the monotonic clock."""

    run: int
    passed: float | None = None


TaskRequest = (
    StopAsked
    | SuspendAsked
    | ResumeAsked
    | PredecessorEnded
    | Renewed
    | PriorityChanged
    | Moved
    | Labelled
    | RunPlaced
)
RunEvent = (
    RunLaunched
    | LaunchFailed
    | RankGone
    | NodeLost
    | RankAttached
    | ProgramStarted
    | StartFailed
    | SuspendAcknowledged
    | SaveProgressed
    | CheckpointLost
    | CheckpointLoaded
    | Yielded
    | ProgramExited
    | WatchdogFired
    | NodeReported
    | WholeLifeStateChanged
    | AgentSilent
    | AgentHeard
    | Ticked
)
RankEvent = (
    LaunchFailed
    | RankGone
    | NodeLost
    | RankAttached
    | ProgramStarted
    | SaveProgressed
    | CheckpointLoaded
    | ProgramExited
    | AgentSilent
    | AgentHeard
)
"""Events that all ranks of a gang send at nearly the same time. They are written together."""

Event = TaskRequest | RunEvent
