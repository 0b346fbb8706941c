"""The last changes of tasks in order of version, and which of them a reader must get. Does no input or output.

A reader that has received everything up to a version needs, of each task that changed after it, only the last state.
`before` is the state that such a reader may have. The reader must get a task that matches its filter now, and once more
a task that matched before and no longer matches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from hai_backend.domain.task import Task, TaskState
from hai_backend.store.base import TaskFilter
from hai_backend.store.matching import matches

GroupsOf = Callable[[str], tuple[str, ...]]
"""Returns the user groups of a user."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """The state of a task after a change, and `before` it.

    `before` of a new task is the task itself. None means unknown: the reader may have any state of the task.
    """

    before: Task | None
    task: Task

    @property
    def size(self) -> int:
        """The number of records that the task consists of: ranks take most of the memory of a large task."""
        return 1 + (len(self.task.run.ranks) if self.task.run is not None else 0)


class Ring:
    """Holds the changes after the version `floor`, up to `version`.

    `capacity` limits the sum of their sizes (see Change.size).
    """

    def __init__(self, version: int, capacity: int) -> None:
        self.floor = self.version = version
        self._capacity = capacity
        self._changes: deque[Change] = deque()
        self._size = 0
        self._finished: dict[int, Task] = {}  # the last states of finished tasks in the ring

    def add(self, task: Task, before: Task | None) -> None:
        """Add a change with a larger version than all others. `before` is None if the task was not unfinished."""
        before = before or self._finished.get(task.id)
        if before is None and task.revision == 1:
            before = task
        if task.state is TaskState.FINISHED:
            self._finished[task.id] = task
        change = Change(before, task)
        self._changes.append(change)
        self._size += change.size
        self.version = task.version
        while self._size > self._capacity:
            self._remove_oldest()

    def advance(self, version: int) -> None:
        """Note that there are no other changes up to this version."""
        self.version = max(self.version, version)

    def _remove_oldest(self) -> None:
        oldest = self._changes.popleft()
        self._size -= oldest.size
        self.floor = oldest.task.version
        if self._finished.get(oldest.task.id) is oldest.task:
            del self._finished[oldest.task.id]

    def after(self, version: int) -> list[Change]:
        """Return one change for each task that changed after `version`, from the state at `version` to the last one.

        They are ordered by version. `version` must not be less than `floor`.
        """
        assert version >= self.floor
        last: dict[int, Change] = {}
        for change in reversed(self._changes):
            if change.task.version <= version:
                break
            later = last.get(change.task.id)
            last[change.task.id] = change if later is None else Change(change.before, later.task)
        return list(reversed(last.values()))


def tasks_to_send(
    changes: Iterable[Change], task_filter: TaskFilter, groups_of: GroupsOf
) -> list[Task]:
    """Return the tasks that a reader with this filter must get."""
    constant = constant_terms(task_filter)

    def must_send(change: Change) -> bool:
        task, before = change.task, change.before
        groups = {task.user: groups_of(task.user)}
        if not matches(task, constant, groups):
            return False
        return (
            constant is task_filter
            or before is None
            or matches(task, task_filter, groups)
            or matches(before, task_filter, groups)
        )

    return [change.task for change in changes if must_send(change)]


@lru_cache(maxsize=1024)
def constant_terms(task_filter: TaskFilter) -> TaskFilter:
    """Return the terms whose result never changes for a task. Return the same filter if it has no other terms."""
    constant = replace(
        task_filter,
        states=frozenset(),
        outcomes=frozenset(),
        tags=frozenset(),
        not_states=frozenset(),
        not_tags=frozenset(),
        awaiting=frozenset(),
        starred=None,
        priority_min=None,
        priority_max=None,
    )
    return task_filter if constant == task_filter else constant
