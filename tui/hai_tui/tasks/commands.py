"""What is done to tasks, one verb for each, and what takes it back. Pure; `batch.on_each` does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hai_tui.i18n import text
from hai_tui.tasks import result_messages

if TYPE_CHECKING:
    from hai.client.client import Client
    from hai.v1.task_pb2 import Task

Verb = Callable[["Client", int], Awaitable["Task"]]
Verbs = tuple[tuple[int, Verb], ...]


@dataclass(frozen=True, slots=True)
class Undo:
    """What takes an action back, task by task, and how it is called."""

    label: str
    verbs: Verbs
    told: result_messages.Told = result_messages.status  # how a task stands then


@dataclass(frozen=True, slots=True)
class Change:
    """One action on some tasks."""

    label: str
    verbs: Verbs
    back: Verbs = ()  # empty: it can not be taken back
    told: result_messages.Told = result_messages.status

    @property
    def undo(self) -> Undo | None:
        """What takes it back."""
        return Undo(self.label, self.back, self.told) if self.back else None


def stop(tasks: Sequence[Task], how: str) -> Change:
    """End them, plain or counted as succeeded or failed; the newest first: they may wait for older ones."""
    from hai.v1.task_pb2 import TaskOutcome

    outcome = "UNSPECIFIED" if how == "plain" else how.upper()
    wanted = TaskOutcome.Value(f"TASK_OUTCOME_{outcome}")
    newest_first = sorted(tasks, key=lambda task: -task.id)
    return _same("stop", newest_first, lambda client, id: client.tasks.stop(id, wanted))


def suspend(tasks: Sequence[Task], *, hold: bool, delay: float) -> Change:
    """Let them leave their nodes; only holding them can be taken back."""
    change = _same("suspend", tasks, lambda client, id: client.tasks.suspend(id, hold, delay))
    back = tuple((task.id, _resume) for task in tasks) if hold else ()
    return Change(change.label, change.verbs, back)


def resume(tasks: Sequence[Task]) -> Change:
    """Let them go on; those that were held are held again by undo."""
    back = tuple((task.id, _hold) for task in tasks if task.held)
    return Change(text("action.resume"), tuple((task.id, _resume) for task in tasks), back)


def priority(tasks: Sequence[Task], level: int) -> Change:
    """Another level."""
    verbs = tuple((task.id, _to_priority(level)) for task in tasks)
    back = tuple((task.id, _to_priority(task.priority)) for task in tasks)
    return Change(text("action.priority"), verbs, back, result_messages.priority)


def tags(tasks: Sequence[Task], add: Collection[str], remove: Collection[str]) -> Change:
    """Add and remove tags; undo gives each what it had."""
    verbs = tuple((task.id, _to_tags(add, remove)) for task in tasks)
    back = tuple((t.id, _to_tags(set(remove) & set(t.tags), set(add) - set(t.tags))) for t in tasks)
    return Change(text("action.tag"), verbs, back, result_messages.tags)


def star(tasks: Sequence[Task]) -> Change:
    """Star them all; when they all have one, take it away."""
    wanted = not all(task.starred for task in tasks)
    verbs = tuple((task.id, _to_star(wanted)) for task in tasks)
    back = tuple((task.id, _to_star(task.starred)) for task in tasks)
    return Change(text("action.star"), verbs, back, result_messages.star)


def move(order: Sequence[int], place: int, to: int) -> Change:
    """The one move that brings a task to another place, and what brings it back: to the last place, two moves."""
    id = order[place]
    label = text("move.label", id=id)
    if to == place + 1:
        return Change(label, ((order[to], _before(id)),), ((id, _before(order[to])),))
    last, behind = order[place - 1], order[place + 1 : place + 2]
    back = ((id, _before(behind[0])),) if behind else ((id, _before(last)), (last, _before(id)))
    return Change(label, ((id, _before(order[to])),), back)


def _same(name: str, tasks: Sequence[Task], verb: Verb) -> Change:
    return Change(text(f"action.{name}"), tuple((task.id, verb) for task in tasks))


_resume: Verb = lambda client, id: client.tasks.resume(id)  # noqa: E731
_hold: Verb = lambda client, id: client.tasks.suspend(id, True)  # noqa: E731


def _to_priority(level: int) -> Verb:
    return lambda client, id: client.tasks.set_priority(id, level)


def _to_tags(add: Collection[str], remove: Collection[str]) -> Verb:
    return lambda client, id: client.tasks.tag(id, sorted(add), sorted(remove))


def _to_star(starred: bool) -> Verb:
    return lambda client, id: client.tasks.star(id, starred)


def _before(other: int) -> Verb:
    return lambda client, id: client.tasks.move(id, other)
