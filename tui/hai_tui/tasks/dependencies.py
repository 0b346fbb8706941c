"""Tasks that wait for one another: what goes before a task, and what comes behind it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hai_tui.formatting.cells import fit

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task

_TOLD = 20
_NAME_CELLS = 32


def before(task: Task) -> list[int]:
    """What it waits for; of one that waits no more, what it was submitted to wait for."""
    return list(task.awaited or (after.task for after in task.spec.options.after))


def behind(tasks: Iterable[Task], known: Iterable[Task]) -> list[int]:
    """What waits for any of these, and is none of them."""
    ids = {task.id for task in tasks}
    return sorted(t.id for t in known if t.id not in ids and not ids.isdisjoint(t.awaited))


def told(ids: Sequence[int], known: Mapping[int, Task]) -> str:
    """`2 train, 3 evaluate`: numbers, and the names that are known."""
    more = " …" if len(ids) > _TOLD else ""
    return ", ".join(_called(id, known.get(id)) for id in ids[:_TOLD]) + more


def _called(id: int, task: Task | None) -> str:
    return f"{id} {fit(task.name, _NAME_CELLS).rstrip()}" if task else str(id)
