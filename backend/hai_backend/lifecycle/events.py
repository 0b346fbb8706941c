"""What can happen to a task. Past tense; asking twice is not an error.

Events of a run carry its number: one that arrives late, from a run that is over, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Outcome

# From people and from the scheduler.


@dataclass(frozen=True, slots=True)
class StopAsked:
    """`outcome` marks the task SUCCEEDED or FAILED; None: STOPPED, or CANCELED when it never ran."""

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
    """A task that goes first has ended. `awaited`: it was still waiting for these itself, and never ran."""

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
    """Nothing of the rank exists any more. `why` where something else than us ended it."""

    run: int
    rank: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The node is unreachable. What ran there may run on, so RankGone comes later: when the launcher is sure."""

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
    """The program has found its node broken."""

    run: int
    rank: int
    error: str


@dataclass(frozen=True, slots=True)
class WholeLifeStateChanged:
    run: int
    rank: int
    value: int


# From whoever listens to agents.


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
    """The run's deadline may have come. `passed`: one that has, by a clock that nobody sets."""

    run: int
    passed: float | None = None


TaskAsk = (
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
"""What happens to all ranks of a gang at nearly the same time, and answers nobody but with the task."""

Event = TaskAsk | RunEvent
