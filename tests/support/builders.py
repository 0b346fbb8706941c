"""Builders of small valid tasks."""

from __future__ import annotations

from typing import Any

from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.domain.task import Task, TaskState


def a_spec(
    name: str = "t", nodes: int = 1, entrypoint: str = "train.py", **options: Any
) -> TaskSpec:
    """Return the specification of a small valid task."""
    return TaskSpec(
        name,
        ProgramSpec(entrypoint),
        resource=ResourceSpec(node_count=nodes),
        priority=Priority.NORMAL,
        options=OptionsSpec(**options),
    )


def a_task(task_id: int = 1, user: str = "ada", **spec: Any) -> Task:
    """Return a task that waits in the queue."""
    made = a_spec(**spec)
    return Task(task_id, user, made, TaskState.WAITING_INIT, made.priority, created_at=1.0)
