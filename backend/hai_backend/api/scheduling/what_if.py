"""Runs trial passes of the scheduler: for dry runs, and to find what keeps a task from starting.

Each question takes a few passes over one group, in a thread, one question at a time. With thousands of nodes this takes
seconds. A question that would have to wait too long for others is answered without trial passes, or refused.
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

MAX_WAIT_SECONDS = 10.0  # for the questions of others
_SEARCH_SECONDS = 3.0  # for remedies; clients wait 10 seconds for a response


@dataclass(frozen=True, slots=True)
class Insight:
    """What trial passes found about a waiting task. `missed` says that there were too many questions to run any."""

    blockers: Blockers = field(default_factory=Blockers)
    remedies: tuple[Remedy, ...] = ()
    missed: bool = False


@dataclass(frozen=True, slots=True)
class DryRunPrediction:
    """The result of a dry run. The insight explains why the task would wait."""

    result: DryRun
    insight: Insight


class WhatIf:
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
        self._lock = asyncio.Lock()

    async def insight(self, task: int, ahead: Sequence[int]) -> Insight:
        """Find what keeps a task from starting. Return an empty insight if it does not wait. Raises Unavailable."""
        async with self._acquire() as acquired:
            if not acquired:
                return Insight(missed=True)
            snapshot = await self._snapshot()
            return await asyncio.to_thread(self._insight, snapshot, task, ahead)

    async def dry_run(self, task: Task) -> DryRunPrediction:
        """Predict what the next pass would do with a task that has no id yet. Raises Unavailable or Exhausted."""
        async with self._acquire() as acquired:
            if not acquired:
                raise Exhausted(
                    "too many dry runs and explanations are running; try again in a moment",
                    retry_after=MAX_WAIT_SECONDS,
                )
            snapshot = await self._snapshot()
            return await asyncio.to_thread(self._dry_run, snapshot, task)

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[bool]:
        """Hold the lock during the context. Yield False, without the lock, if that takes too long."""
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await self._lock.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            self._lock.release()

    async def _snapshot(self) -> Snapshot:
        """Return the snapshot of the scheduler, with the current time. Raises Unavailable before the first pass."""
        snapshot = await self._scheduling.snapshot()
        if not isfinite(snapshot.now):
            raise Unavailable("no scheduling pass has been made yet; try again in a moment")
        return replace(snapshot, now=max(snapshot.now, self._clock.now()))

    def _insight(self, snapshot: Snapshot, task: int, ahead: Sequence[int]) -> Insight:
        group = next((t.group for t in snapshot.tasks if t.id == task), None)
        if group is None:
            return Insight()
        trial = run_pass(select_group(snapshot, group), task, self._policy)
        deadline = time.monotonic() + self._search_seconds
        return Insight(
            find_blockers(trial.cycle, task, ahead) if trial.cycle else Blockers(),
            find_remedies(snapshot, task, self._policy, lambda: time.monotonic() < deadline),
        )

    def _dry_run(self, snapshot: Snapshot, task: Task) -> DryRunPrediction:
        task_id = 1 + max((other.id for other in snapshot.tasks), default=0)
        new_task = sched_task(replace(task, id=task_id))
        result = dry_run(snapshot, new_task, self._policy)
        if result.outcome is not Outcome.WAITS or result.wait is None:
            return DryRunPrediction(result, Insight())
        with_task = replace(snapshot, tasks=(*snapshot.tasks, new_task))
        return DryRunPrediction(result, self._insight(with_task, task_id, result.wait.ahead))
