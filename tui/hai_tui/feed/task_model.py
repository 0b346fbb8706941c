"""Every task that we have heard of, by id. Pure: it applies answers in any order and any number of times.

Two sources fill it: the watch (unfinished tasks, then changes) and pages of the list (older tasks).
A task's version decides: a later state is never replaced by an earlier one, whichever comes last,
so that reconnecting can neither double nor lose a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from hai.v1.task_pb2 import TASK_STATE_FINISHED, TASK_STATE_RUNNING, Task, Waiting
from hai.v1.task_service_pb2 import WatchTasksResponse
from hai_tui.feed.task_row import TaskRow


class TaskModel:
    """Tasks by id, and the version from which a watch goes on."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}
        self._rows: dict[int, TaskRow] = {}
        self.version = 0
        self.loaded = False  # the first answer of the watch is here
        self._waiting_by_id: dict[int, Waiting] = {}

    @property
    def tasks(self) -> Mapping[int, Task]:
        """What is known, unordered."""
        return MappingProxyType(self._tasks)

    @property
    def rows(self) -> Mapping[int, TaskRow]:
        """The same, as lists ask for it."""
        return MappingProxyType(self._rows)

    def get(self, id: int) -> Task | None:
        """One task, if it was heard of."""
        return self._tasks.get(id)

    def waiting(self, task: Task) -> Waiting:
        """Why a task waits and its place: of the last look at the queue, if it was in it then and has not left it."""
        has_started = task.state in (TASK_STATE_RUNNING, TASK_STATE_FINISHED)
        return task.waiting if has_started else self._waiting_by_id.get(task.id, task.waiting)

    def apply_queue(self, queue: Iterable[Task]) -> set[int]:
        """Take an answer of ListQueue: places change without any change of the tasks themselves."""
        waiting_by_id = {task.id: task.waiting for task in queue}
        changed = {
            id
            for id in waiting_by_id.keys() | self._waiting_by_id.keys()
            if waiting_by_id.get(id) != self._waiting_by_id.get(id)
        }
        self._waiting_by_id = waiting_by_id
        return changed

    def is_from_other_database(self, answer: WatchTasksResponse) -> bool:
        """True when versions have gone back: the server was given other data."""
        return 0 < answer.version < self.version

    def reset(self) -> None:
        """Begin anew."""
        self.__init__()  # type: ignore[misc]

    def apply(self, answer: WatchTasksResponse) -> set[int]:
        """Take an answer of the watch; the ids that are not as they were."""
        changed = self.merge(answer.tasks)
        self.version = max(self.version, answer.version)
        self.loaded = True
        return changed

    def merge(self, tasks: Iterable[Task]) -> set[int]:
        """Take tasks from elsewhere (a page, the answer of an action); the ids that changed."""
        return {task.id for task in tasks if self._take(task)}

    def _take(self, task: Task) -> bool:
        existing = self._tasks.get(task.id)
        if existing is not None and existing.version >= task.version:
            return False
        self._tasks[task.id] = task
        self._rows[task.id] = TaskRow(task)
        return True
