"""Knows how long the last tasks of each user took to save, so that a new task of the same name can be warned.

The store is asked once for each user, with the user's first submission. So a submission costs no query.
"""

from __future__ import annotations

from dataclasses import dataclass

from hai_backend.domain.task import Task, TaskState
from hai_backend.store.base import Store, TaskFilter, TaskQuery

_MAX_TASKS = 300  # that are read, and names that are remembered, for each user: reading more would hold others up


@dataclass(frozen=True, slots=True)
class LastSave:
    """The longest of the last saves of a finished task."""

    task_id: int
    seconds: float


class SaveHistory:
    """The saves of the newest finished tasks by user and name. `changed` is called for every change of a task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._users: dict[str, dict[str, LastSave]] = {}

    async def last(self, user: str, name: str) -> LastSave | None:
        """Return what is known of the last task of this name that has saved. Raises HaiError."""
        if user not in self._users:
            await self._load(user)
        return self._users[user].get(name)

    def changed(self, task: Task) -> None:
        """Remember the saves of a task that has finished."""
        if task.state is TaskState.FINISHED and task.user in self._users:
            _remember(self._users[task.user], task)

    async def _load(self, user: str) -> None:
        finished = TaskFilter(users=frozenset({user}), states=frozenset({TaskState.FINISHED}))
        page = await self._store.find_tasks(TaskQuery(finished, page_size=_MAX_TASKS))
        known = self._users.setdefault(user, {})
        for task in reversed(page.tasks):  # the newest at last
            _remember(known, task)


def _remember(known: dict[str, LastSave], task: Task) -> None:
    seconds, earlier = task.progress.longest_save, known.get(task.spec.name)
    if seconds is None or (earlier is not None and earlier.task_id > task.id):
        return
    known.pop(task.spec.name, None)  # so that the order is that of the tasks
    known[task.spec.name] = LastSave(task.id, seconds)
    if len(known) > _MAX_TASKS:
        del known[next(iter(known))]
