"""Directories of tasks, and what they wrote there: listed, and removed when nobody needs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hai.v1 import workspace_service_pb2 as pb
from hai_backend.api.request import limits, paging
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.convert import task_tree_to_proto
from hai_backend.domain.errors import Conflict
from hai_backend.workspaces import task_trees
from hai_backend.workspaces.push.removal import remove_tree
from hai_backend.workspaces.registry import OpenWorkspace

_AFTER_ALL = 1 << 62


class TaskTrees:
    """`confirm` raises Deposed when another server leads by now: nothing may be changed any more."""

    def __init__(self, workspaces: Workspaces, confirm: Callable[[], Awaitable[None]]) -> None:
        self._workspaces = workspaces
        self._confirm = confirm

    async def page(self, room: OpenWorkspace, size: int, token: str) -> pb.ListTaskTreesResponse:
        """Newest task first."""
        size = paging.size(size, limits.DEFAULT_PAGE_SIZE)
        found = await self._workspaces.rooms.work(
            room.files.path,
            task_trees.trees,
            room.files,
            before=paging.number(token) or _AFTER_ALL,
            limit=size + 1,
        )
        unfinished = self._unfinished(room)
        keyed = ((str(t.task), task_tree_to_proto(t, t.task in unfinished)) for t in found)
        trees, next_token = paging.page(keyed, size)
        return pb.ListTaskTreesResponse(trees=trees, next_page_token=next_token)

    async def delete(self, room: OpenWorkspace, task: int) -> None:
        """Raises NotFound, or Conflict while its program may still write there."""
        if task in self._unfinished(room):
            raise Conflict(f"task {task} has not ended; stop it first", reason="PINNED")
        work = self._workspaces.rooms.work
        async with room.changing:
            await self._confirm()
            gone = await work(room.files.path, task_trees.hide, room.files, task)
        room.publish()
        await work(gone, remove_tree, gone)

    def _unfinished(self, room: OpenWorkspace) -> frozenset[int]:
        pins = self._workspaces.pins(room.key)
        return frozenset(task for tasks in pins.values() for task in tasks)
