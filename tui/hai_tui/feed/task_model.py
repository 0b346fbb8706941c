"""The tasks that the app knows, by id. Answers may arrive in any order and more than once. Does no input or output.

Two sources fill it: the watch (unfinished tasks, then changes) and pages of the list (older tasks).
A later version of a task is never replaced by an earlier one, so reconnecting can neither double nor lose a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from hai.v1.task_pb2 import TASK_STATE_FINISHED, TASK_STATE_RUNNING, Task, Waiting
from hai.v1.task_service_pb2 import WatchTasksResponse
from hai_tui.feed.task_row import TaskRow


class TaskModel:
    """Tasks by id, and the version from which the watch resumes."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}
        self._rows: dict[int, TaskRow] = {}
        self.version = 0
        self.loaded = False  # True after the first answer of the watch
        self._waiting_by_id: dict[int, Waiting] = {}

    @property
    def tasks(self) -> Mapping[int, Task]:
        """Return the tasks by id, in no order."""
        return MappingProxyType(self._tasks)

    @property
    def rows(self) -> Mapping[int, TaskRow]:
        """Return the row of each task by id."""
        return MappingProxyType(self._rows)

    def get(self, id: int) -> Task | None:
        """Return the task, or None if it is unknown."""
        return self._tasks.get(id)

    def waiting(self, task: Task) -> Waiting:
        """Return why a task waits and its place in the queue. The last answer of ListQueue takes precedence."""
        has_started = task.state in (TASK_STATE_RUNNING, TASK_STATE_FINISHED)
        return task.waiting if has_started else self._waiting_by_id.get(task.id, task.waiting)

    def apply_queue(self, queue: Iterable[Task]) -> set[int]:
        """Store an answer of ListQueue; return the ids whose place or reason changed. Such a change gives a task no
        new version.
        """
        waiting_by_id = {task.id: task.waiting for task in queue}
        changed = {
            id
            for id in waiting_by_id.keys() | self._waiting_by_id.keys()
            if waiting_by_id.get(id) != self._waiting_by_id.get(id)
        }
        self._waiting_by_id = waiting_by_id
        return changed

    def is_from_other_database(self, answer: WatchTasksResponse) -> bool:
        """Return whether versions have gone back, which means that the server has another database."""
        return 0 < answer.version < self.version

    def reset(self) -> None:
        """Forget all tasks."""
        self.__init__()  # type: ignore[misc]

    def apply(self, answer: WatchTasksResponse) -> set[int]:
        """Store an answer of the watch; return the ids that changed."""
        changed = self.merge(answer.tasks)
        self.version = max(self.version, answer.version)
        self.loaded = True
        return changed

    def merge(self, tasks: Iterable[Task]) -> set[int]:
        """Store tasks of another source (a page of the list, the answer of an action); return the ids that changed."""
        return {task.id for task in tasks if self._store(task)}

    def _store(self, task: Task) -> bool:
        existing = self._tasks.get(task.id)
        if existing is not None and existing.version >= task.version:
            return False
        self._tasks[task.id] = task
        self._rows[task.id] = TaskRow(task)
        return True
