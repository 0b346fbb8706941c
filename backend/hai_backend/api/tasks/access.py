"""Finds tasks on behalf of a caller: what may not be seen does not exist."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.api.protocols import TaskManager
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity, require_steering, sees
from hai_backend.domain.errors import NotFound
from hai_backend.domain.task import Task
from hai_backend.store.base import TaskFilter


class TaskAccess:
    """Shared by all services that speak of tasks."""

    def __init__(self, task_manager: TaskManager, directory: Directory) -> None:
        self._task_manager = task_manager
        self._directory = directory

    async def visible(self, identity: Identity, task_id: int) -> Task:
        """A task that the caller may see. Raises NotFound."""
        task = await self._task_manager.get(task_id)
        if not self.sees(identity, task):
            raise NotFound(f"there is no task {task_id}; `hai list` shows yours")
        return task

    async def steerable(self, identity: Identity, task_id: int) -> Task:
        """A task that the caller may change. Raises NotFound or Denied."""
        task = await self.visible(identity, task_id)
        require_steering(identity, task)
        return task

    def sees(self, identity: Identity, task: Task) -> bool:
        """Whether the caller may know of a task."""
        return sees(identity, task, self._directory.groups_of(task.user))

    def can_see_unfinished(self, identity: Identity, task_id: int) -> bool:
        """The same for a task that has not ended."""
        task = self._task_manager.unfinished().get(task_id)
        return task is not None and self.sees(identity, task)


def within_sight(wanted: TaskFilter, identity: Identity) -> TaskFilter:
    """The filter, narrowed to what the caller may see."""
    if identity.oversees_tasks:
        return wanted
    return replace(wanted, visible_to=identity.name, visible_groups=frozenset(identity.user.groups))
