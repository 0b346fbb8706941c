"""Turns what the ledger and the cluster know into the value that the scheduler looks at."""

from __future__ import annotations

from collections.abc import Iterable

from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import SchedTask, Standing
from hai_backend.domain.task import RunState, Task


class SchedTasks:
    """Task -> SchedTask, remembered by revision: a pass converts only what changed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, SchedTask]] = {}
        self._saved: dict[int, tuple[int, float]] = {}  # run, and when it last saved

    def saved(self, task_id: int, run: int, when: float) -> None:
        """A run has saved a checkpoint: suspending it now loses little."""
        self._saved[task_id] = (run, when)
        self._known.pop(task_id, None)

    def of(self, tasks: Iterable[Task]) -> tuple[SchedTask, ...]:
        """In the order given; forgets tasks that are not among them."""
        known, self._known = self._known, {}
        for task in tasks:
            before = known.get(task.id)
            if before is None or before[0] != task.revision:
                before = (task.revision, sched_task(task, self._saved_at(task)))
            self._known[task.id] = before
        self._saved = {i: saved for i, saved in self._saved.items() if i in self._known}
        return tuple(entry[1] for entry in self._known.values())

    def _saved_at(self, task: Task) -> float | None:
        if task.run is None or task.waiting:
            return None
        run, when = self._saved.get(task.id, (0, 0.0))
        if task.run.number == run:
            return when
        stored = task.progress.saved_at  # of an earlier run, or from before a restart of the server
        return stored if stored is not None and stored >= task.run.created_at else None


def sched_task(task: Task, saved_at: float | None = None) -> SchedTask:
    """The few facts of a task that scheduling depends on."""
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
        held=task.held,
        not_before=task.not_before,
        assigned_nodes=task.spec.options.assigned_nodes,
        run_seconds=task.run_seconds,
        standing=_standing(task),
        placed=tuple(r.node for r in active.ranks if not r.state.gone) if active else (),
        run_priority=active.priority if active else Priority.AUTO,
        run_started_at=(active.started_at or active.created_at) if active else None,
        leaves_free=active is not None
        and active.state not in (RunState.CREATED, RunState.BUILDING),
        suspended_for=active.suspended_for if active else 0,
        saved_at=saved_at,
        yields=task.progress.yields,
        restart_seconds=task.progress.restart_seconds,
    )


def _standing(task: Task) -> Standing:
    if task.waiting or task.run is None:
        return Standing.QUEUED
    running = task.run.state is RunState.RUNNING and not task.run.stop_code
    building = task.run.state in (RunState.CREATED, RunState.BUILDING)
    return Standing.RUNNING if running or building else Standing.LEAVING
