"""The launcher's interface: what makes ranks exist. process.py runs them here, kubernetes/ as pods.

A launcher knows nothing about tasks or scheduling. It starts agents and reports when they have terminated. After a
restart of the server it first lists what exists. Every method may be called again with the same arguments.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hai_backend.domain.node import Node
from hai_backend.launch.request import RunRequest


@dataclass(frozen=True, slots=True, order=True)
class RankKey:
    """Names one rank of one run of one task."""

    task_id: int
    run: int
    rank: int

    def __str__(self) -> str:
        return f"{self.task_id}-{self.run}-{self.rank}"


@dataclass(frozen=True, slots=True)
class RankLaunch:
    """What a launcher needs to start one agent. `token` is valid for this rank of this run only."""

    key: RankKey
    node: str
    token: str
    gpu_indices: tuple[int, ...] = ()
    run: RunRequest = RunRequest()  # the same for all ranks of a run


@dataclass(frozen=True, slots=True)
class KillRequest:
    """A rank to kill, and what the server knows about it."""

    key: RankKey
    node: str = (
        ""  # the node of the rank; while it is unreachable, RankTerminated waits for the fence
    )
    ran: bool = False  # the program may run even if no object of the rank exists; its lease is not renewed any more
    exited: bool = False  # the agent has reported that the program has ended
    preempted: bool = False  # the rank gives way to another task


# Events, past tense.


@dataclass(frozen=True, slots=True)
class RankList:
    """The first event after a start or a reconnect: everything that exists now.

    `launched_runs`: runs (task, number) whose launch a server has begun. A rank of such a run that is not in `keys` may
    have been deleted. Empty for launchers that always see every running rank.
    `complete`: a rank that is not listed does not exist. If False, its object may have been deleted by force while its
    program still runs.
    """

    keys: frozenset[RankKey]
    launched_runs: frozenset[tuple[int, int]] = frozenset()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class RankTerminated:
    """Nothing of the rank exists any more; its node is free. `why` is set if something other than us ended it."""

    key: RankKey
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The rank could not be started, and nothing of it exists."""

    key: RankKey
    reason: str
    unschedulable: bool = False  # the node lacks resources: try another node


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes as they are now, complete."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RankEvictionNotice:
    """Something else is deleting the rank: its program must save now."""

    key: RankKey
    why: str


LauncherEvent = RankList | RankTerminated | RankEvictionNotice | LaunchFailed | NodeList


class Launcher(Protocol):
    """Creates and terminates ranks."""

    name: str

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        """Start agents. Skips ranks that already exist. Failures are reported as LaunchFailed events."""

    async def kill(self, request: KillRequest) -> None:
        """Kill a rank with all its processes. RankTerminated follows, also for a rank that does not exist."""

    def events(self) -> AsyncIterator[LauncherEvent]:
        """NodeList and RankList first, then changes, until closed."""

    async def close(self) -> None:
        """Stop watching. Ranks run on."""
