"""Finds tasks on behalf of a caller. A task that the caller may not see is reported as not found."""

from __future__ import annotations

from dataclasses import replace

from hai_backend.api.protocols import TaskManager
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import Identity, can_see_task, require_may_modify
from hai_backend.domain.errors import NotFound
from hai_backend.domain.task import Task
from hai_backend.store.base import TaskFilter


class TaskAccess:
    def __init__(self, task_manager: TaskManager, directory: Directory) -> None:
        self._task_manager = task_manager
        self._directory = directory

    async def get_visible(self, identity: Identity, task_id: int) -> Task:
        """Return a task that the caller may see. Raises NotFound."""
        task = await self._task_manager.get(task_id)
        if not self.can_see(identity, task):
            raise NotFound(f"there is no task {task_id}; `hai list` shows yours")
        return task

    async def get_modifiable(self, identity: Identity, task_id: int) -> Task:
        """Return a task that the caller may change. Raises NotFound or Denied."""
        task = await self.get_visible(identity, task_id)
        require_may_modify(identity, task)
        return task

    def can_see(self, identity: Identity, task: Task) -> bool:
        """Say whether the caller may see a task."""
        return can_see_task(identity, task, self._directory.groups_of(task.user))

    def can_see_unfinished(self, identity: Identity, task_id: int) -> bool:
        """Say whether the caller may see a task, which must be unfinished."""
        task = self._task_manager.unfinished().get(task_id)
        return task is not None and self.can_see(identity, task)


def restrict_to_visible(task_filter: TaskFilter, identity: Identity) -> TaskFilter:
    """Return the filter, restricted to tasks that the caller may see."""
    if identity.oversees_tasks:
        return task_filter
    groups = frozenset(identity.user.groups)
    return replace(task_filter, visible_to=identity.name, visible_groups=groups)
