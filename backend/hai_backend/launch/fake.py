"""A launcher for tests and the simulator: its ranks are entries of a dictionary.

It passes the same contract tests as the real launchers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from hai_backend.domain.gpu import GpuState
from hai_backend.domain.node import Node
from hai_backend.launch.base import (
    KillRequest,
    LauncherEvent,
    LaunchFailed,
    NodeList,
    RankKey,
    RankLaunch,
    RankList,
    RankTerminated,
)


class FakeLauncher:
    """Implements launch.base.Launcher in memory.

    `existing` are the ranks that a restarted server finds; `launched_runs` and `complete` are as in RankList.
    """

    name = "fake"

    def __init__(
        self,
        nodes: Sequence[Node],
        existing: Iterable[RankKey] = (),
        launched_runs: Iterable[tuple[int, int]] = (),
        *,
        complete: bool = True,
    ) -> None:
        self._complete = complete
        self.nodes = tuple(nodes)
        self.gpus: Mapping[str, tuple[GpuState, ...]] = {}
        self.writes: list[RankKey] = []  # see write_checkpoints
        self._launched_runs = frozenset(launched_runs)
        self.ranks: dict[RankKey, RankLaunch | None] = dict.fromkeys(existing)
        self._events: asyncio.Queue[LauncherEvent | None] = asyncio.Queue()

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        names = {node.name for node in self.nodes}
        for rank in ranks:
            if rank.node in names:
                self.ranks.setdefault(rank.key, rank)
            else:
                reason = f"there is no node {rank.node}"
                self.emit(LaunchFailed(rank.key, reason, unschedulable=True))

    async def write_checkpoints(self, key: RankKey) -> None:
        """See Launcher. Only count the calls."""
        self.writes.append(key)

    async def kill(self, request: KillRequest) -> None:
        self.terminate(request.key)

    def terminate(self, key: RankKey) -> None:
        """Remove a rank, as if its agent had exited or had been killed, and report that it has terminated."""
        self.ranks.pop(key, None)
        self._events.put_nowait(RankTerminated(key))

    def emit(self, event: LauncherEvent) -> None:
        self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[LauncherEvent]:
        self._reopen()
        yield NodeList(self.nodes)
        yield RankList(frozenset(self.ranks), self._launched_runs, self._complete)
        while (event := await self._events.get()) is not None:
            yield event

    async def read_gpus(self) -> Mapping[str, tuple[GpuState, ...]]:
        return self.gpus

    async def close(self) -> None:
        self._events.put_nowait(None)

    def _reopen(self) -> None:
        """Drop the end marker that `close` has queued. A test may use the launcher for several servers in turn."""
        pending = [self._events.get_nowait() for _ in range(self._events.qsize())]
        for event in pending:
            if event is not None:
                self._events.put_nowait(event)
