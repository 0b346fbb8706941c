"""Lists and deletes the directories of tasks, with what the tasks wrote there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hai.v1 import workspace_service_pb2 as pb
from hai_backend.api.request import limits, paging
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.convert import task_tree_to_proto
from hai_backend.domain.errors import Conflict
from hai_backend.workspaces import checkouts
from hai_backend.workspaces.push.removal import remove_tree
from hai_backend.workspaces.registry import OpenWorkspace

_AFTER_ALL = 1 << 62


class TaskTrees:
    """Lists and deletes task trees. `confirm` raises Deposed if another server leads: then nothing may be changed."""

    def __init__(self, workspaces: Workspaces, confirm: Callable[[], Awaitable[None]]) -> None:
        self._workspaces = workspaces
        self._confirm = confirm

    async def page(
        self, workspace: OpenWorkspace, size: int, token: str
    ) -> pb.ListTaskTreesResponse:
        """Return a page of directories, newest task first."""
        size = paging.page_size(size, limits.DEFAULT_PAGE_SIZE)
        found = await self._workspaces.registry.run(
            workspace.files.path,
            checkouts.list_directories,
            workspace.files,
            before=paging.read_number(token) or _AFTER_ALL,
            limit=size + 1,
        )
        unfinished = self._unfinished(workspace)
        keyed = ((str(t.task), task_tree_to_proto(t, t.task in unfinished)) for t in found)
        trees, next_token = paging.take_page(keyed, size)
        return pb.ListTaskTreesResponse(trees=trees, next_page_token=next_token)

    async def delete(self, workspace: OpenWorkspace, task: int) -> None:
        """Delete a task's directory. Raises NotFound, or Conflict while its program may still write there."""
        if task in self._unfinished(workspace):
            raise Conflict(f"task {task} has not ended; stop it first", reason="PINNED")
        run = self._workspaces.registry.run
        async with workspace.change_lock:
            await self._confirm()
            hidden = await run(workspace.files.path, checkouts.hide, workspace.files, task)
        workspace.notify_change()
        await run(hidden, remove_tree, hidden)

    def _unfinished(self, workspace: OpenWorkspace) -> frozenset[int]:
        pins = self._workspaces.pins(workspace.key)
        return frozenset(task for tasks in pins.values() for task in tasks)
