"""Events: what can happen to a task. A request may be repeated without error.

Events of a run carry its number: one that arrives late, from an earlier run, changes nothing. The class names are the
kinds of events in timelines, so they are a part of the contract with clients.
"""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Outcome

# Requests of people and of the scheduler.


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Stop the task. `outcome` marks it SUCCEEDED or FAILED; None: STOPPED, or CANCELED if it never ran."""

    by: str
    outcome: Outcome | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SuspendAsked:
    """Leave the nodes. `hold` keeps the task off them until ResumeAsked, `delay` for so many seconds."""

    by: str
    reason: str
    for_task: int = 0
    hold: bool = False
    delay: float = 0.0
    higher: bool = False  # for_task is of a higher level


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    by: str


@dataclass(frozen=True, slots=True)
class PredecessorEnded:
    """A dependency has ended. `awaited`: tasks that it still waited for itself, so it never ran."""

    task: int
    outcome: Outcome
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lifetime of a dev container begins anew."""

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
    """Rank i on nodes[i], with the GPUs gpus[i] of it."""

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
    """Nothing of the rank exists any more. `why`: what ended it, if not the platform."""

    run: int
    rank: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The node is unreachable. Its programs may run on, so RankGone comes later, when the launcher is sure."""

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
    """`environment_lock`: lock hash of the environment that it was started in; empty: none."""

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
    """The rank's agent has not been heard for `Timing.silent_after`. `since`: when it was heard last."""

    run: int
    rank: int
    since: float


@dataclass(frozen=True, slots=True)
class AgentHeard:
    """An agent that was silent is heard again."""

    run: int
    rank: int


# From the clock.


@dataclass(frozen=True, slots=True)
class Ticked:
    """The run's deadline may have passed. `passed`: a deadline that has, by the monotonic clock."""

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
    | ProgramExited
    | AgentSilent
    | AgentHeard
)
"""Events of all ranks of a gang at nearly the same time, which are written together."""

Event = TaskRequest | RunEvent
