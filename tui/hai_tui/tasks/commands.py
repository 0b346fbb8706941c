"""Commands on tasks as values: an operation for each task, and the operations that undo it. `run_on_each` runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hai.client.errors import HaiError
from hai_tui.i18n import text
from hai_tui.tasks.descriptions import (
    describe_priority,
    describe_star,
    describe_status,
    describe_tags,
)

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task

Operation = Callable[["Client", int], Awaitable["Task"]]
Operations = tuple[tuple[int, Operation], ...]
ResultMessage = Callable[["Task"], str]
"""Describes the state in which an operation left a task."""

_MAX_CONCURRENT = 8


@dataclass(frozen=True, slots=True)
class Undo:
    """The operations that undo an action."""

    label: str
    operations: Operations
    message: ResultMessage = describe_status


@dataclass(frozen=True, slots=True)
class Change:
    """One action on some tasks."""

    label: str
    operations: Operations
    undo_operations: Operations = ()  # empty if the action cannot be undone
    message: ResultMessage = describe_status

    @property
    def undo(self) -> Undo | None:
        return (
            Undo(self.label, self.undo_operations, self.message) if self.undo_operations else None
        )


def stop(tasks: Sequence[Task], how: str) -> Change:
    """Stop the tasks; `how` is plain, succeeded or failed. The newest go first, as they may wait for older ones."""
    from hai.v1.task_pb2 import TaskOutcome

    outcome_name = "UNSPECIFIED" if how == "plain" else how.upper()
    outcome = TaskOutcome.Value(f"TASK_OUTCOME_{outcome_name}")
    newest_first = sorted(tasks, key=lambda task: -task.id)
    return _same_for_all("stop", newest_first, lambda client, id: client.tasks.stop(id, outcome))


def suspend(tasks: Sequence[Task], *, hold: bool, delay: float) -> Change:
    """Suspend the tasks. Only `hold` can be undone."""
    change = _same_for_all(
        "suspend", tasks, lambda client, id: client.tasks.suspend(id, hold, delay)
    )
    undo_operations = tuple((task.id, _resume) for task in tasks) if hold else ()
    return Change(change.label, change.operations, undo_operations)


def resume(tasks: Sequence[Task]) -> Change:
    """Resume the tasks. Undo holds those again that were held."""
    undo_operations = tuple((task.id, _hold) for task in tasks if task.held)
    return Change(
        text("action.resume"), tuple((task.id, _resume) for task in tasks), undo_operations
    )


def set_priority(tasks: Sequence[Task], level: int) -> Change:
    """Give all tasks the same priority."""
    operations = tuple((task.id, _set_priority(level)) for task in tasks)
    undo_operations = tuple((task.id, _set_priority(task.priority)) for task in tasks)
    return Change(text("action.priority"), operations, undo_operations, describe_priority)


def change_tags(tasks: Sequence[Task], add: Collection[str], remove: Collection[str]) -> Change:
    """Add and remove tags. Undo restores the tags of each task."""
    operations = tuple((task.id, _change_tags(add, remove)) for task in tasks)
    undo_operations = tuple(
        (t.id, _change_tags(set(remove) & set(t.tags), set(add) - set(t.tags))) for t in tasks
    )
    return Change(text("action.tag"), operations, undo_operations, describe_tags)


def toggle_star(tasks: Sequence[Task]) -> Change:
    """Star all tasks, or unstar them if all of them are starred."""
    starred = not all(task.starred for task in tasks)
    operations = tuple((task.id, _set_star(starred)) for task in tasks)
    undo_operations = tuple((task.id, _set_star(task.starred)) for task in tasks)
    return Change(text("action.star"), operations, undo_operations, describe_star)


def move(order: Sequence[int], index: int, target: int) -> Change:
    """Move a task of the queue to another position.

    One operation is enough, since a task can be put before any other. Only undo of a move from the last position needs
    two: the task goes before the last one, then the last one before the task.
    """
    id = order[index]
    label = text("move.label", id=id)
    if target == index + 1:
        return Change(
            label, ((order[target], _move_before(id)),), ((id, _move_before(order[target])),)
        )
    last, next_ids = order[index - 1], order[index + 1 : index + 2]
    undo_operations = (
        ((id, _move_before(next_ids[0])),)
        if next_ids
        else ((id, _move_before(last)), (last, _move_before(id)))
    )
    return Change(label, ((id, _move_before(order[target])),), undo_operations)


def _same_for_all(name: str, tasks: Sequence[Task], operation: Operation) -> Change:
    return Change(text(f"action.{name}"), tuple((task.id, operation) for task in tasks))


_resume: Operation = lambda client, id: client.tasks.resume(id)  # noqa: E731
_hold: Operation = lambda client, id: client.tasks.suspend(id, True)  # noqa: E731


def _set_priority(level: int) -> Operation:
    return lambda client, id: client.tasks.set_priority(id, level)


def _change_tags(add: Collection[str], remove: Collection[str]) -> Operation:
    return lambda client, id: client.tasks.tag(id, sorted(add), sorted(remove))


def _set_star(starred: bool) -> Operation:
    return lambda client, id: client.tasks.star(id, starred)


def _move_before(other: int) -> Operation:
    return lambda client, id: client.tasks.move(id, other)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an operation on one task: the changed task, or an error."""

    id: int
    task: Task | None = None
    error: HaiError | None = None


async def run_on_each(
    client: Client, operations: Sequence[tuple[int, Operation]], *, at_once: int = _MAX_CONCURRENT
) -> list[Outcome]:
    """Run each operation on its task and return the outcomes in the same order. A failure does not stop the others."""
    semaphore = asyncio.Semaphore(at_once)

    async def run_one(id: int, operation: Operation) -> Outcome:
        async with semaphore:
            try:
                return Outcome(id, task=await operation(client, id))
            except HaiError as error:
                return Outcome(id, error=error)

    return list(await asyncio.gather(*(run_one(id, operation) for id, operation in operations)))
