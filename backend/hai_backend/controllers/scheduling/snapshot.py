"""Converts tasks into the values that the scheduler uses, and collects changes between passes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import Ending, SchedTask, SchedulingState
from hai_backend.domain.task import RunState, Task, TaskState

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """Changes since the last pass. A thread converts them, because after a start they include all tasks."""

    changed: Collection[Task]
    finished: Collection[Task]
    saved_at: Callable[[Task], float | None]

    @property
    def tasks(self) -> tuple[SchedTask, ...]:
        return tuple(sched_task(task, self.saved_at(task)) for task in self.changed)

    @property
    def ended(self) -> tuple[int, ...]:
        return tuple(task.id for task in self.finished)

    @property
    def endings(self) -> tuple[Ending, ...]:
        return tuple(ending(task) for task in self.finished if task.run_seconds > 0)


class Changes:
    """Collects changes of tasks between two passes, so that a pass converts only these."""

    def __init__(self) -> None:
        self._changed: dict[int, Task] = {}
        self._ended: dict[int, Task] = {}
        # by task: the run, and the time of its last checkpoint
        self._saved: dict[int, tuple[int, float]] = {}

    def update(self, task: Task) -> None:
        """Record a new or changed task."""
        if task.state is TaskState.FINISHED:
            self._changed.pop(task.id, None)
            self._saved.pop(task.id, None)
            self._ended[task.id] = task
        else:
            self._changed[task.id] = task

    def saved(self, task: Task, run: int, when: float) -> None:
        """Record that a run has saved a checkpoint, so that its suspension now loses little work."""
        self._saved[task.id] = (run, when)
        self._changed[task.id] = task

    def take(self) -> TaskChanges:
        """Return all changes since the last call."""
        changed, self._changed = self._changed, {}
        ended, self._ended = self._ended, {}
        return TaskChanges(changed.values(), ended.values(), self._saved_at)

    def _saved_at(self, task: Task) -> float | None:
        if task.run is None or task.waiting:
            return None
        run, when = self._saved.get(task.id, (0, 0.0))
        if task.run.number == run:
            return when
        # reported by an earlier run, or before the last restart of the server
        stored = task.progress.saved_at
        return stored if stored is not None and stored >= task.run.created_at else None


def ending(task: Task) -> Ending:
    """Return what the scheduler learns from a finished task."""
    return Ending(sched_task(task), task.run_seconds)


def pattern(name: str) -> str:
    """Replace the numbers in a name, so that similar names are equal: `lr-0.1` and `lr-0.03` become `lr-#.#`."""
    return _DIGITS.sub("#", name)


def sched_task(task: Task, saved_at: float | None = None) -> SchedTask:
    """Convert a task to the facts on which scheduling depends. `saved_at` is the time of its last checkpoint."""
    resource, run = task.spec.resource, task.run
    active = run if run is not None and not task.waiting else None
    return SchedTask(
        id=task.id,
        user=task.user,
        group=resource.group,
        zone=resource.zone,
        node_count=resource.node_count,
        priority=task.priority,
        created_at=task.created_at,
        custom_rank=task.custom_rank,
        task_type=task.spec.task_type,
        gpu=resource.gpu,
        cpu=resource.cpu,
        memory=resource.memory,
        spot=resource.is_spot,
        held=task.held,
        not_before=task.not_before,
        awaited=task.awaited,
        assigned_nodes=task.spec.options.assigned_nodes,
        run_seconds=task.run_seconds,
        standing=_state_of(task),
        placed=tuple(r.node for r in active.ranks if not r.state.terminated) if active else (),
        run_priority=active.priority if active else Priority.AUTO,
        run_started_at=(active.started_at or active.created_at) if active else None,
        leaves_free=active is not None
        and active.state not in (RunState.CREATED, RunState.BUILDING),
        suspended_for=active.suspended_for if active else 0,
        saved_at=saved_at,
        name=pattern(task.spec.name),
        waiting_since=task.progress.queued_at,
        suspensions=task.progress.suspensions,
        yields=task.progress.yields,
        restart_seconds=task.progress.restart_seconds,
        save_seconds=task.progress.longest_save or 0.0,
        lost_seconds=task.progress.lost_seconds,
        unsaved_suspensions=task.progress.unsaved_suspensions,
    )


def _state_of(task: Task) -> SchedulingState:
    if task.waiting or task.run is None:
        return SchedulingState.QUEUED
    running = task.run.state is RunState.RUNNING and not task.run.stop_code
    building = task.run.state in (RunState.CREATED, RunState.BUILDING)
    return SchedulingState.RUNNING if running or building else SchedulingState.LEAVING
