"""Asks the scheduler itself what it would do: for dry runs, and for what keeps a task from its start.

Each question is a few passes over one group, made in a thread, one question at a time. With thousands of nodes that is
seconds, so who comes when many ask is told what is known without it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from math import isfinite

from hai_backend.api.protocols import Scheduling
from hai_backend.controllers.aio.clock import Clock
from hai_backend.controllers.scheduling.snapshot import sched_task
from hai_backend.domain.errors import Exhausted, Unavailable
from hai_backend.domain.scheduling.snapshot import Snapshot
from hai_backend.domain.task import Task
from hai_backend.scheduler.explain.blockers import Blockers, find_blockers
from hai_backend.scheduler.explain.dry_run import DryRun, Outcome, dry_run
from hai_backend.scheduler.explain.remedy import Remedy
from hai_backend.scheduler.explain.remedy_search import find_remedies
from hai_backend.scheduler.explain.trial_pass import run_pass, select_group
from hai_backend.scheduler.policy.policy import Policy

PATIENCE_SECONDS = 10.0  # behind the questions of others
_SEARCH_SECONDS = 3.0  # for what would help: clients wait ten for the whole answer


@dataclass(frozen=True, slots=True)
class Insight:
    """What is known of a waiting task beyond the sentence of the last pass. `missed`: nobody looked, for many ask."""

    blockers: Blockers = field(default_factory=Blockers)
    remedies: tuple[Remedy, ...] = ()
    missed: bool = False


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What would become of a new task; the insight is into its wait."""

    dry_run: DryRun
    insight: Insight


class WhatIf:
    """`policy` is the server's own."""

    def __init__(
        self,
        scheduling: Scheduling,
        policy: Policy,
        clock: Clock,
        *,
        search_seconds: float = _SEARCH_SECONDS,
    ) -> None:
        self._scheduling = scheduling
        self._policy = policy
        self._clock = clock
        self._search_seconds = search_seconds
        self._thinking = asyncio.Lock()

    async def insight(self, task: int, ahead: Sequence[int]) -> Insight:
        """Into a task that the last pass has left in the queue; empty of another. Raises Unavailable."""
        async with self._turn() as ours:
            if not ours:
                return Insight(missed=True)
            snapshot = await self._snapshot()
            return await asyncio.to_thread(self._insight, snapshot, task, ahead)

    async def rehearse(self, task: Task) -> Rehearsal:
        """What the next pass would do with a task that has no id yet. Raises Unavailable or Exhausted."""
        async with self._turn() as ours:
            if not ours:
                raise Exhausted(
                    "many ask what the scheduler would do just now; try again in a moment",
                    retry_after=PATIENCE_SECONDS,
                )
            snapshot = await self._snapshot()
            return await asyncio.to_thread(self._rehearse, snapshot, task)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[bool]:
        """Alone; False: others ask for too long."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._thinking.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            self._thinking.release()

    async def _snapshot(self) -> Snapshot:
        """What the last pass was shown, at this moment."""
        snapshot = await self._scheduling.snapshot()
        if not isfinite(snapshot.now):
            raise Unavailable("no scheduling pass has been made yet; try again in a moment")
        return replace(snapshot, now=max(snapshot.now, self._clock.now()))

    def _insight(self, snapshot: Snapshot, task: int, ahead: Sequence[int]) -> Insight:
        group = next((t.group for t in snapshot.tasks if t.id == task), None)
        if group is None:
            return Insight()
        found = run_pass(select_group(snapshot, group), task, self._policy)
        end = time.monotonic() + self._search_seconds
        return Insight(
            find_blockers(found.cycle, task, ahead) if found.cycle else Blockers(),
            find_remedies(snapshot, task, self._policy, lambda: time.monotonic() < end),
        )

    def _rehearse(self, snapshot: Snapshot, task: Task) -> Rehearsal:
        number = 1 + max((other.id for other in snapshot.tasks), default=0)
        newcomer = sched_task(replace(task, id=number))
        found = dry_run(snapshot, newcomer, self._policy)
        if found.outcome is not Outcome.WAITS or found.wait is None:
            return Rehearsal(found, Insight())
        with_it = replace(snapshot, tasks=(*snapshot.tasks, newcomer))
        return Rehearsal(found, self._insight(with_it, number, found.wait.ahead))
