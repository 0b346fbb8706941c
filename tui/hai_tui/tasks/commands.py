"""Changes of tasks as values: an operation for each task, and the operations that undo it. `run_on_each` runs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hai_tui.i18n import text
from hai_tui.tasks import result_messages

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task

Operation = Callable[["Client", int], Awaitable["Task"]]
Operations = tuple[tuple[int, Operation], ...]


@dataclass(frozen=True, slots=True)
class Undo:
    """What takes an action back, task by task, and how it is called."""

    label: str
    operations: Operations
    message: result_messages.ResultMessage = result_messages.status  # how a task stands then


@dataclass(frozen=True, slots=True)
class Change:
    """One action on some tasks."""

    label: str
    operations: Operations
    undo_operations: Operations = ()  # empty: it can not be taken back
    message: result_messages.ResultMessage = result_messages.status

    @property
    def undo(self) -> Undo | None:
        """What takes it back."""
        return (
            Undo(self.label, self.undo_operations, self.message) if self.undo_operations else None
        )


def stop(tasks: Sequence[Task], how: str) -> Change:
    """End them, plain or counted as succeeded or failed; the newest first: they may wait for older ones."""
    from hai.v1.task_pb2 import TaskOutcome

    outcome = "UNSPECIFIED" if how == "plain" else how.upper()
    requested = TaskOutcome.Value(f"TASK_OUTCOME_{outcome}")
    newest_first = sorted(tasks, key=lambda task: -task.id)
    return _same("stop", newest_first, lambda client, id: client.tasks.stop(id, requested))


def suspend(tasks: Sequence[Task], *, hold: bool, delay: float) -> Change:
    """Let them leave their nodes; only holding them can be taken back."""
    change = _same("suspend", tasks, lambda client, id: client.tasks.suspend(id, hold, delay))
    undo_operations = tuple((task.id, _resume) for task in tasks) if hold else ()
    return Change(change.label, change.operations, undo_operations)


def resume(tasks: Sequence[Task]) -> Change:
    """Let them go on; those that were held are held again by undo."""
    undo_operations = tuple((task.id, _hold) for task in tasks if task.held)
    return Change(
        text("action.resume"), tuple((task.id, _resume) for task in tasks), undo_operations
    )


def priority(tasks: Sequence[Task], level: int) -> Change:
    """Another level."""
    operations = tuple((task.id, _to_priority(level)) for task in tasks)
    undo_operations = tuple((task.id, _to_priority(task.priority)) for task in tasks)
    return Change(text("action.priority"), operations, undo_operations, result_messages.priority)


def tags(tasks: Sequence[Task], add: Collection[str], remove: Collection[str]) -> Change:
    """Add and remove tags; undo gives each what it had."""
    operations = tuple((task.id, _to_tags(add, remove)) for task in tasks)
    undo_operations = tuple(
        (t.id, _to_tags(set(remove) & set(t.tags), set(add) - set(t.tags))) for t in tasks
    )
    return Change(text("action.tag"), operations, undo_operations, result_messages.tags)


def star(tasks: Sequence[Task]) -> Change:
    """Star them all; when they all have one, take it away."""
    requested = not all(task.starred for task in tasks)
    operations = tuple((task.id, _to_star(requested)) for task in tasks)
    undo_operations = tuple((task.id, _to_star(task.starred)) for task in tasks)
    return Change(text("action.star"), operations, undo_operations, result_messages.star)


def move(order: Sequence[int], index: int, target: int) -> Change:
    """The one move that brings a task to another place, and what brings it back: to the last place, two moves."""
    id = order[index]
    label = text("move.label", id=id)
    if target == index + 1:
        return Change(label, ((order[target], _before(id)),), ((id, _before(order[target])),))
    last, next_ids = order[index - 1], order[index + 1 : index + 2]
    undo_operations = (
        ((id, _before(next_ids[0])),) if next_ids else ((id, _before(last)), (last, _before(id)))
    )
    return Change(label, ((id, _before(order[target])),), undo_operations)


def _same(name: str, tasks: Sequence[Task], operation: Operation) -> Change:
    return Change(text(f"action.{name}"), tuple((task.id, operation) for task in tasks))


_resume: Operation = lambda client, id: client.tasks.resume(id)  # noqa: E731
_hold: Operation = lambda client, id: client.tasks.suspend(id, True)  # noqa: E731


def _to_priority(level: int) -> Operation:
    return lambda client, id: client.tasks.set_priority(id, level)


def _to_tags(add: Collection[str], remove: Collection[str]) -> Operation:
    return lambda client, id: client.tasks.tag(id, sorted(add), sorted(remove))


def _to_star(starred: bool) -> Operation:
    return lambda client, id: client.tasks.star(id, starred)


def _before(other: int) -> Operation:
    return lambda client, id: client.tasks.move(id, other)
