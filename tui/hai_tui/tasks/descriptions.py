"""Describes tasks in the language of the screen: results of actions, causes of failures, dependencies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hai.client.tasks import diagnosis
from hai_tui.formatting.cells import fit
from hai_tui.formatting.values import priority_name
from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task

_MAX_DESCRIBED = 20
_NAME_CELLS = 32


def describe_status(task: Task) -> str:
    """Say in which state an action left the task."""
    from hai_tui.views.tasks import status

    return text("stands.is", what=status(task))


def describe_priority(task: Task) -> str:
    """Say which priority an action left the task with."""
    return text("stands.is", what=priority_name(task.priority))


def describe_tags(task: Task) -> str:
    """Say which tags an action left the task with."""
    return text("stands.tags", tags=", ".join(task.tags)) if task.tags else text("stands.no_tags")


def describe_star(task: Task) -> str:
    """Say whether an action left the task starred."""
    return text("stands.starred" if task.starred else "stands.not_starred")


def likely_cause(exit_code: int, lines: Sequence[str]) -> str:
    """Return one sentence about the likely cause of a failure; empty if the last lines show none."""
    key = diagnosis.likely_cause(exit_code, lines)
    return text(f"cause.{key}") if key else ""


def upstream(task: Task) -> list[int]:
    """Return the ids of the tasks that the task waits for.

    If it no longer waits, return the ids that its spec names under `after`.
    """
    return list(task.awaited or (after.task for after in task.spec.options.after))


def downstream(tasks: Iterable[Task], all_tasks: Iterable[Task]) -> list[int]:
    """Return the ids of all other tasks that wait for any of these."""
    ids = {task.id for task in tasks}
    return sorted(t.id for t in all_tasks if t.id not in ids and not ids.isdisjoint(t.awaited))


def describe_tasks(ids: Sequence[int], tasks_by_id: Mapping[int, Task]) -> str:
    """Return ids with the known names, such as `2 train, 3 evaluate`."""
    more = " …" if len(ids) > _MAX_DESCRIBED else ""
    return ", ".join(_describe_one(id, tasks_by_id.get(id)) for id in ids[:_MAX_DESCRIBED]) + more


def _describe_one(id: int, task: Task | None) -> str:
    return f"{id} {fit(task.name, _NAME_CELLS).rstrip()}" if task else str(id)
