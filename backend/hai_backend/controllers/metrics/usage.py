"""Collects the measurements of agents: the current minute is in memory, completed minutes are in the store.

One write per minute stores all ranks. A crash loses the current minute. If the store is unavailable for long, the
oldest minutes are lost. The streams of agents are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

import structlog

from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.metrics.cluster_load import loads
from hai_backend.domain.errors import HaiError
from hai_backend.domain.node import Group, Node
from hai_backend.domain.task import Task
from hai_backend.domain.usage import (
    MINUTE,
    GroupLoad,
    Minutes,
    RankUse,
    Use,
    bucket_start,
    merge_uses,
)
from hai_backend.launch.base import RankKey

log = structlog.get_logger(__name__)

_WAITING_MINUTES = 10  # minutes that are kept in memory while the store is unavailable
_LATE_SECONDS = 0.5  # delay after the end of a minute, because timers may expire a little early

_Ranks = dict[int, dict[tuple[int, int], Use]]  # by task, then by run and rank


class UsageStore(Protocol):
    """The part of the store that is used here."""

    async def add_usage(self, minutes: Minutes) -> None: ...


class Tasks(Protocol):
    """The part of the task manager that is used here."""

    def unfinished(self) -> Mapping[int, Task]: ...


class Cluster(Protocol):
    """The current nodes and node groups."""

    def nodes(self) -> Mapping[str, Node]: ...
    def groups(self) -> Mapping[str, Group]: ...


class Usage:
    """Records the usage of ranks. `record` is called with every heartbeat, and `run` writes until it is cancelled."""

    def __init__(self, store: UsageStore, tasks: Tasks, cluster: Cluster, clock: Clock) -> None:
        self._store = store
        self._tasks = tasks
        self._cluster = cluster
        self._clock = clock
        self._minutes: dict[int, _Ranks] = {}  # by start; the newest minute may be incomplete
        self._last: _Ranks = {}  # the newest completed minute

    def record(self, key: RankKey, use: Use) -> None:
        """Record one measurement of a rank."""
        minute = bucket_start(self._clock.now(), MINUTE)
        ranks = self._minutes.setdefault(minute, {}).setdefault(key.task_id, {})
        known = ranks.get((key.run, key.rank))
        ranks[key.run, key.rank] = use if known is None else merge_uses(known, use)

    def open(self, task_id: int) -> list[RankUse]:
        """Return the usage of a task in the current minute, which is not in the store yet."""
        minute = bucket_start(self._clock.now(), MINUTE)
        ranks = self._minutes.get(minute, {}).get(task_id, {})
        return [RankUse(task_id, run, rank, minute, use) for (run, rank), use in ranks.items()]

    def recent(self, key: RankKey) -> Use | None:
        """Return what a rank used in the current minute, else in the minute before, else None."""
        minute, place = bucket_start(self._clock.now(), MINUTE), (key.run, key.rank)
        for ranks in (
            self._minutes.get(minute, {}),
            self._minutes.get(minute - MINUTE, self._last),
        ):
            if (use := ranks.get(key.task_id, {}).get(place)) is not None:
                return use
        return None

    async def run(self) -> None:
        """Write each minute after its end, until cancelled."""
        while True:
            now = self._clock.now()
            await asyncio.sleep(bucket_start(now, MINUTE) + MINUTE - now + _LATE_SECONDS)
            try:
                await self.write()
            except HaiError as error:
                log.warning("what ranks used waits for the store", why=str(error))

    async def write(self) -> None:
        """Write the completed minutes. They are kept in memory until they are durable. Raises Unavailable."""
        until = bucket_start(self._clock.now(), MINUTE)
        over = {minute: tasks for minute, tasks in self._minutes.items() if minute < until}
        self._forget(sorted(over)[:-_WAITING_MINUTES])
        self._last = over.get(until - MINUTE, {})
        minutes = Minutes(until, _listed(over), self._loads(until - MINUTE))
        await self._store.add_usage(minutes)
        self._forget(over)

    def _forget(self, minutes: Iterable[int]) -> None:
        for minute in minutes:
            self._minutes.pop(minute, None)

    def _loads(self, minute: int) -> list[GroupLoad]:
        ranks = self._minutes.get(minute, {})

        def used(key: RankKey) -> Use | None:
            return ranks.get(key.task_id, {}).get((key.run, key.rank))

        nodes, groups = self._cluster.nodes(), self._cluster.groups()
        return loads(minute, nodes, groups, self._tasks.unfinished().values(), used)


def _listed(minutes: Mapping[int, _Ranks]) -> list[RankUse]:
    return [
        RankUse(task_id, run, rank, minute, use)
        for minute, tasks in minutes.items()
        for task_id, ranks in tasks.items()
        for (run, rank), use in ranks.items()
    ]
