"""The interface of launchers, which create and terminate ranks.

local_launcher.py runs ranks as processes of this machine; kubernetes/ runs them as pods. A launcher knows nothing about
tasks or scheduling. It starts agents and reports when they have terminated. After a restart of the server, it first
lists the ranks that exist. Every method may be called again with the same arguments.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hai_backend.domain.gpu import GpuState
from hai_backend.domain.node import Node
from hai_backend.launch.request import RunRequest


@dataclass(frozen=True, slots=True, order=True)
class RankKey:
    """Identifies one rank of one run of one task."""

    task_id: int
    run: int
    rank: int

    def __str__(self) -> str:
        return f"{self.task_id}-{self.run}-{self.rank}"


@dataclass(frozen=True, slots=True)
class RankLaunch:
    """The data that a launcher needs to start one agent. `token` is valid for this rank of this run only."""

    key: RankKey
    node: str
    token: str
    gpu_indices: tuple[int, ...] = ()
    run: RunRequest = RunRequest()  # the same for all ranks of a run


@dataclass(frozen=True, slots=True)
class KillRequest:
    """A request to kill a rank, with what the server knows about the rank."""

    key: RankKey
    # the node of the rank; while the node is unreachable, RankTerminated waits for the fence
    node: str = ""
    # the program may run even if no object of the rank exists; its lease is no longer renewed
    ran: bool = False
    exited: bool = False  # the agent has reported that the program has ended
    preempted: bool = False  # the rank gives way to another task


# Events.


@dataclass(frozen=True, slots=True)
class RankList:
    """All ranks that exist now. A launcher reports it first after a start or a reconnect.

    `launched_runs` are the runs (task, number) whose launch a server has begun. A rank of such a run that is not in
    `keys` may have been deleted. The set is empty for launchers that always see every running rank.

    If `complete` is True, a rank that is not listed does not exist. If it is False, the object of such a rank may have
    been deleted by force while its program still runs.
    """

    keys: frozenset[RankKey]
    launched_runs: frozenset[tuple[int, int]] = frozenset()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class RankTerminated:
    """No process or pod of the rank exists any more, so its node is free.

    `why` is set only if the server did not request the end of the rank.
    """

    key: RankKey
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The rank could not be started, and no process or pod of it exists."""

    key: RankKey
    reason: str
    unschedulable: bool = False  # the node cannot run the rank, but another node may


@dataclass(frozen=True, slots=True)
class NodeList:
    """The current state of all nodes.

    Tasks share the nodes of `packed_groups` unless the operator has stored settings of the group.
    """

    nodes: tuple[Node, ...]
    packed_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RankEvictionNotice:
    """The rank is being deleted, but not by the server. Its program must save now."""

    key: RankKey
    why: str


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A staged checkpoint of a run was written from memory to disk, perhaps after the end of the run."""

    task_id: int
    run: int
    seconds: float


LauncherEvent = (
    RankList | RankTerminated | RankEvictionNotice | LaunchFailed | NodeList | CheckpointWritten
)


class Launcher(Protocol):
    """Creates and terminates ranks."""

    name: str

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        """Start agents, except those of ranks that already exist. Failures are reported as LaunchFailed events."""

    async def kill(self, request: KillRequest) -> None:
        """Kill a rank with all its processes. RankTerminated is reported later, even if the rank does not exist."""

    async def write_checkpoints(self, key: RankKey) -> None:
        """See that checkpoints in the memory of the rank's node are written to disk, also after the rank has ended.

        Return when this is certain, or after some seconds.
        """

    def events(self) -> AsyncIterator[LauncherEvent]:
        """Yield NodeList and RankList first, then changes, until the launcher is closed."""

    async def read_gpus(self) -> Mapping[str, tuple[GpuState, ...]]:
        """Return the real GPUs of each node that the launcher can see itself; agents report the others."""

    async def close(self) -> None:
        """Stop watching. Ranks continue to run."""
