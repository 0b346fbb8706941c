"""The launcher's interface: what makes ranks exist. process.py runs them here, kubernetes/ as pods.

A launcher knows nothing of tasks or scheduling. It starts agents, says when they are gone, and after a restart of the
server it first lists what exists. Every verb may be repeated.
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
    """What a launcher needs to start one agent. `token` is good for this rank of this run only."""

    key: RankKey
    node: str
    token: str
    gpu_indices: tuple[int, ...] = ()
    run: RunRequest = RunRequest()  # the same for all ranks of a run


# Events, past tense.


@dataclass(frozen=True, slots=True)
class Listed:
    """The first event after a start or a reconnect: everything that exists now.

    `begun`: runs (task, number) that a server has begun to make: what is missing of them may have been taken away.
    Empty where what runs is always to be seen.
    `certain`: what is not listed does not exist. Otherwise its object may have been deleted by force, and it runs on.
    """

    keys: frozenset[RankKey]
    begun: frozenset[tuple[int, int]] = frozenset()
    certain: bool = True


@dataclass(frozen=True, slots=True)
class RankGone:
    """Nothing of the rank exists any more; its node is free. `why` where something else than us ended it."""

    key: RankKey
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The rank could not be started; nothing of it exists."""

    key: RankKey
    reason: str
    unschedulable: bool = False  # the node has no room: try elsewhere


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """The nodes as they are now, complete."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class RankLeaving:
    """Somebody takes the rank away: what is not saved soon is lost."""

    key: RankKey
    why: str


LauncherEvent = Listed | RankGone | RankLeaving | LaunchFailed | NodesSeen


class Launcher(Protocol):
    """Makes ranks exist and go away."""

    name: str

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        """Start agents. A rank that exists already is left alone. Failures come as LaunchFailed events."""

    async def kill(
        self,
        key: RankKey,
        node: str = "",
        *,
        ran: bool = False,
        exited: bool = False,
        preempted: bool = False,
    ) -> None:
        """End a rank by force, with every process it made. RankGone follows; also for one that does not exist.

        `node` is where it was to be: of a node that is away nothing is believed too early. `ran`: its program may run,
        also where nothing of it is to be seen; from now on its lease is not renewed. `exited`: its agent has said that
        nothing of its program runs any more. `preempted`: for another task.
        """

    def events(self) -> AsyncIterator[LauncherEvent]:
        """NodesSeen and Listed first, then changes, until closed."""

    async def close(self) -> None:
        """Stop watching. Ranks run on."""
