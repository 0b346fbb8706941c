"""Collects reports of programs about their checkpoints, limits them to plausible times, and stores them rarely.

Between two writes, the reports of a task are only in memory. Every write of the task includes them (`with_unsaved`), so
they are complete when a run ends. There is at most one additional write in 30 s. A crash of the server loses the
reports since the last write. Estimates are then less exact: the unsaved work seems up to 30 s larger, and the number of
checkpoints is too small. No decision and no work is lost.

Only the lowest rank that reports is counted for a task, so that a checkpoint of a gang counts once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Protocol

import structlog

from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.errors import HaiError
from hai_backend.domain.progress import Progress, update_longest, update_mean
from hai_backend.domain.task import Run, RunState, Task, TaskState
from hai_backend.launch.base import RankKey

log = structlog.get_logger(__name__)

# Agents send at most one report per second. Reports at intervals below this limit are dropped.
_PACE_SECONDS = 0.5
_MAX_PER_SECOND = 1000  # largest plausible number of checkpoints per second


@dataclass(frozen=True, slots=True)
class Report:
    """A report of `count` checkpoints that took `seconds` each (0 if unknown).

    The last checkpoint was saved `program_seconds` after the start of the program, or just now if that is None.
    """

    seconds: float
    count: int = 1
    program_seconds: float | None = None
    step: int | None = None  # of the last checkpoint; None if unknown

    @property
    def plausible(self) -> bool:
        """False: no correct agent would send this."""
        said = (self.seconds, self.program_seconds or 0.0)
        return self.count >= 1 and all(isfinite(s) and s >= 0 for s in said)


@dataclass(frozen=True, slots=True)
class _Unsaved:
    """The progress of a run that is newer than the stored task."""

    run: int
    rank: int
    received_at: float
    progress: Progress  # what it knows of checkpoints is newer than those of the task
    save_seconds: float | None = None  # of the last checkpoint of the run
    write_seconds: float | None = None


class Tasks(Protocol):
    def unfinished(self) -> Mapping[int, Task]: ...
    async def flush(self, task_id: int) -> Task: ...


class Checkpoints:
    """Calls `saved` with task, run and time for each report that counts. `every` is the time between two writes."""

    def __init__(
        self,
        clock: Clock,
        saved: Callable[[int, int, float], None] = lambda task, run, when: None,
        every: float = 30.0,
    ) -> None:
        # set once by server.leader.components, because the two components refer to each other
        self.task_manager: Tasks | None = None
        self.saved = saved
        self._clock = clock
        self._every = every
        self._unsaved: dict[int, _Unsaved] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._logged: dict[int, int] = {}  # by task: the run of the last implausible report
        self._work: set[asyncio.Task[None]] = set()

    def report(self, key: RankKey, report: Report) -> None:
        """Process a report. Reports that are implausible, late or too frequent are ignored without an error."""
        assert self.task_manager is not None
        task, now = self.task_manager.unfinished().get(key.task_id), self._clock.now()
        if task is None or not _may_report(task, key) or not self._accepts(key, now):
            return
        if not report.plausible:
            self._log_implausible(key, report)
            return
        assert task.run is not None
        known = self.with_unsaved(task)
        assert known.run is not None
        progress, seconds = merged(known.progress, task.run, key.rank, report, now)
        self._unsaved[task.id] = _Unsaved(
            key.run, key.rank, now, progress, seconds, known.run.write_seconds
        )
        self.saved(task.id, key.run, progress.saved_at or now)
        self._flush_after(task.id, self._every)

    def report_written(self, task_id: int, run: int, seconds: float) -> None:
        """Process the report that a staged checkpoint of a run was written to disk, also after the end of the run."""
        assert self.task_manager is not None
        task = self.task_manager.unfinished().get(task_id)
        if task is None or task.run is None or task.run.number != run:
            return
        known = self.with_unsaved(task)
        assert known.run is not None
        unsaved = self._unsaved.get(task_id)
        if unsaved is None or unsaved.run != run:
            # any rank may still report
            unsaved = _Unsaved(run, sys.maxsize, 0.0, known.progress, known.run.save_seconds)
        self._unsaved[task_id] = replace(unsaved, write_seconds=seconds)
        self._flush_after(task_id, self._every if task.state is TaskState.RUNNING else 0.0)

    def with_unsaved(self, task: Task) -> Task:
        """Return the task with the reports that are not stored yet."""
        unsaved = self._unsaved.get(task.id)
        if unsaved is None or task.run is None or task.run.number != unsaved.run:
            return task
        newer, write_seconds = unsaved.progress, unsaved.write_seconds
        if task.run.write_seconds != write_seconds:
            task = replace(task, run=replace(task.run, write_seconds=write_seconds))
        if task.progress.saves == newer.saves:
            return task
        progress = replace(
            task.progress,
            saving_seconds=newer.saving_seconds,
            saved_at=newer.saved_at,
            saves=newer.saves,
            saved_step=newer.saved_step,
            save_seconds=newer.save_seconds,
            longest_save=newer.longest_save,
        )
        assert task.run is not None
        run = replace(task.run, save_seconds=unsaved.save_seconds)
        return replace(task, progress=progress, run=run)

    def remove(self, task_id: int) -> None:
        """Remove the reports of a task whose run has ended. They must be stored."""
        self._unsaved.pop(task_id, None)
        self._logged.pop(task_id, None)
        timer = self._timers.pop(task_id, None)
        if timer is not None:
            timer.cancel()

    def _accepts(self, key: RankKey, now: float) -> bool:
        unsaved = self._unsaved.get(key.task_id)
        if unsaved is None or unsaved.run != key.run:
            return True
        if key.rank != unsaved.rank:
            return key.rank < unsaved.rank
        return not 0 <= now - unsaved.received_at < _PACE_SECONDS

    def _log_implausible(self, key: RankKey, report: Report) -> None:
        if self._logged.get(key.task_id) != key.run:
            self._logged[key.task_id] = key.run
            log.warning("a report of checkpoints is implausible", rank=str(key), said=str(report))

    def _flush_after(self, task_id: int, seconds: float) -> None:
        if task_id not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[task_id] = loop.call_later(seconds, self._flush_later, task_id)

    def _flush_later(self, task_id: int) -> None:
        self._timers.pop(task_id, None)
        work = asyncio.ensure_future(self._flush(task_id))
        self._work.add(work)
        work.add_done_callback(self._work.discard)

    async def _flush(self, task_id: int) -> None:
        assert self.task_manager is not None
        if task_id not in self.task_manager.unfinished():
            return
        try:
            await self.task_manager.flush(task_id)
        except HaiError as error:  # the next write of the task includes the reports
            log.warning("reports of checkpoints wait for the store", task=task_id, why=str(error))

    async def close(self) -> None:
        """Store all reports."""
        waiting, self._timers = self._timers, {}
        for timer in waiting.values():
            timer.cancel()
        await asyncio.gather(*self._work, *(self._flush(task_id) for task_id in waiting))


def _may_report(task: Task, key: RankKey) -> bool:
    """Return whether the rank belongs to a run that has not ended, and its program has started."""
    run = task.run
    if run is None or task.waiting or run.number != key.run or run.state is RunState.ENDED:
        return False
    return key.rank < len(run.ranks) and run.ranks[key.rank].started_at is not None


def merged(
    progress: Progress, run: Run, rank: int, report: Report, now: float
) -> tuple[Progress, float | None]:
    """Return the progress with a report that is limited to possible times, and the limited seconds; None if unknown.

    The last checkpoint cannot be later than now, nor earlier than the previous checkpoint or the start of the program.
    All reported checkpoints together cannot have taken longer than the time since that bound.
    """
    start = run.ranks[rank].started_at or now
    before = min(now, max(start, progress.saved_at or start))
    said = now if report.program_seconds is None else start + report.program_seconds
    when = min(now, max(before, said))
    elapsed = when - before
    count = min(report.count, int(_MAX_PER_SECOND * max(1.0, elapsed)))
    seconds = min(report.seconds, elapsed / count)
    progress = replace(
        progress, saved_at=when, saves=progress.saves + count, saved_step=report.step
    )
    if seconds <= 0:
        return progress, None
    # The time after the request to leave counts as leaving.
    saving = count * seconds if run.asked_at is None else 0.0
    progress = replace(
        progress,
        save_seconds=update_mean(progress.save_seconds, seconds, count),
        longest_save=update_longest(progress.longest_save, seconds),
        saving_seconds=progress.saving_seconds + saving,
    )
    return progress, seconds
