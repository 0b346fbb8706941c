"""Turns what the ledger and the cluster know into the value that the scheduler looks at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import SchedTask, Standing
from hai_backend.domain.task import RunState, Task


class SchedTasks:
    """Task -> SchedTask, remembered by revision: a pass converts only what changed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, SchedTask]] = {}

    def saved(self, task_id: int, when: float) -> None:
        """The program of a task has saved a checkpoint: suspending it now loses little."""
        if task_id in self._known:
            revision, known = self._known[task_id]
            self._known[task_id] = (revision, replace(known, saved_at=when))

    def of(self, tasks: Iterable[Task]) -> tuple[SchedTask, ...]:
        """In the order given; forgets tasks that are not among them."""
        known, self._known = self._known, {}
        for task in tasks:
            before = known.get(task.id)
            fresh = before is None or before[0] != task.revision
            self._known[task.id] = (task.revision, sched_task(task)) if fresh else before  # type: ignore[assignment]
        return tuple(entry[1] for entry in self._known.values())


def sched_task(task: Task) -> SchedTask:
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
    )


def _standing(task: Task) -> Standing:
    if task.waiting or task.run is None:
        return Standing.QUEUED
    running = task.run.state is RunState.RUNNING and not task.run.stop_code
    building = task.run.state in (RunState.CREATED, RunState.BUILDING)
    return Standing.RUNNING if running or building else Standing.LEAVING
