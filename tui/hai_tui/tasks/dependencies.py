"""Dependencies between tasks: which tasks a task waits for, and which wait for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hai_tui.formatting.cells import fit

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task

_MAX_DESCRIBED = 20
_NAME_CELLS = 32


def upstream(task: Task) -> list[int]:
    """What it waits for; of one that waits no more, what it was submitted to wait for."""
    return list(task.awaited or (after.task for after in task.spec.options.after))


def downstream(tasks: Iterable[Task], tasks_by_id: Iterable[Task]) -> list[int]:
    """What waits for any of these, and is none of them."""
    ids = {task.id for task in tasks}
    return sorted(t.id for t in tasks_by_id if t.id not in ids and not ids.isdisjoint(t.awaited))


def describe(ids: Sequence[int], tasks_by_id: Mapping[int, Task]) -> str:
    """`2 train, 3 evaluate`: numbers, and the names that are known."""
    more = " …" if len(ids) > _MAX_DESCRIBED else ""
    return ", ".join(_describe_one(id, tasks_by_id.get(id)) for id in ids[:_MAX_DESCRIBED]) + more


def _describe_one(id: int, task: Task | None) -> str:
    return f"{id} {fit(task.name, _NAME_CELLS).rstrip()}" if task else str(id)
