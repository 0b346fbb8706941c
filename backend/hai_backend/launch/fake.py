"""A launcher that makes nothing: ranks exist in a set. For tests and the simulator; passes the launcher contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from hai_backend.domain.node import Node
from hai_backend.launch.base import (
    LauncherEvent,
    LaunchFailed,
    Listed,
    NodesSeen,
    RankGone,
    RankKey,
    RankLaunch,
)


class FakeLauncher:
    """`existing` is what a restarted server finds, `begun` the runs that the one before had begun to make.

    `certain` as in Listed.
    """

    name = "fake"

    def __init__(
        self,
        nodes: Sequence[Node],
        existing: Iterable[RankKey] = (),
        begun: Iterable[tuple[int, int]] = (),
        *,
        certain: bool = True,
    ) -> None:
        self._certain = certain
        self.nodes = tuple(nodes)
        self._begun = frozenset(begun)
        self.ranks: dict[RankKey, RankLaunch | None] = dict.fromkeys(existing)
        self._events: asyncio.Queue[LauncherEvent | None] = asyncio.Queue()

    async def start(self, ranks: Sequence[RankLaunch]) -> None:
        names = {node.name for node in self.nodes}
        for rank in ranks:
            if rank.node in names:
                self.ranks.setdefault(rank.key, rank)
            else:
                reason = f"there is no node {rank.node}"
                self.say(LaunchFailed(rank.key, reason, unschedulable=True))

    async def kill(
        self,
        key: RankKey,
        node: str = "",
        *,
        ran: bool = False,
        exited: bool = False,
        preempted: bool = False,
    ) -> None:
        self.end(key)

    def end(self, key: RankKey) -> None:
        """The rank is gone: its agent left, or was killed."""
        self.ranks.pop(key, None)
        self._events.put_nowait(RankGone(key))

    def say(self, event: LauncherEvent) -> None:
        """Let the launcher report something."""
        self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[LauncherEvent]:
        self._reopen()
        yield NodesSeen(self.nodes)
        yield Listed(frozenset(self.ranks), self._begun, self._certain)
        while (event := await self._events.get()) is not None:
            yield event

    async def close(self) -> None:
        self._events.put_nowait(None)

    def _reopen(self) -> None:
        """A test may use it for one reign after the other: forget that it was closed."""
        left = [self._events.get_nowait() for _ in range(self._events.qsize())]
        for event in left:
            if event is not None:
                self._events.put_nowait(event)
