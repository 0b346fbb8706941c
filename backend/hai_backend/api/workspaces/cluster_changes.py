"""Workspaces that clients follow: what programs write into them becomes a revision by itself, which followers are told.

A workspace that nobody follows costs nothing: it is looked at when somebody asks for its tree.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager

import structlog

from hai_backend.api.workspaces.trees import Trees
from hai_backend.domain.errors import HaiError
from hai_backend.domain.workspace import PassedOver
from hai_backend.workspaces.registry import Key, OpenWorkspace, WorkspaceRegistry
from hai_backend.workspaces.storage import tree_events

LEAST_SECONDS = 0.5  # from one look to the next: programs that write all the time make no more revisions than that
_FREE = (
    4  # times as long as a look has taken, nobody looks: at most a fifth of the time goes into it
)
_AGAIN_SECONDS = 5.0  # where a look has failed
log = structlog.get_logger(__name__)


class WorkspaceFollowing:
    """One watch for each workspace, however many follow it. Looks at everything take turns."""

    def __init__(self, rooms: WorkspaceRegistry, trees: Trees) -> None:
        self._rooms = rooms
        self._trees = trees
        self._followers: dict[Key, int] = {}
        self._watches: dict[Key, asyncio.Task[None]] = {}
        self._looking_at_all = asyncio.Lock()

    @asynccontextmanager
    async def following(self, room: OpenWorkspace) -> AsyncIterator[None]:
        """While it is entered, the workspace is watched."""
        key = room.key
        self._followers[key] = self._followers.get(key, 0) + 1
        if key not in self._watches:
            self._watches[key] = asyncio.create_task(self._watch(room))
        try:
            yield
        finally:
            self._followers[key] -= 1
            if not self._followers[key]:
                del self._followers[key]
                watch = self._watches.pop(key)
                watch.cancel()
                await asyncio.wait({watch})

    async def _watch(self, room: OpenWorkspace) -> None:
        trouble = ""
        while True:
            try:
                async with aclosing(tree_events.changes(self._rooms, room.files.tree)) as changes:
                    async for paths in changes:
                        began = time.monotonic()
                        await self._look(room, paths)
                        took, trouble = time.monotonic() - began, ""
                        await asyncio.sleep(max(LEAST_SECONDS, _FREE * took))
            except HaiError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    log.warning("a workspace is not watched", workspace=room.key, why=trouble)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _look(self, room: OpenWorkspace, paths: Collection[str] | None) -> None:
        if paths is not None:
            await self._trees.looked(room, PassedOver(), paths)
            return
        async with self._looking_at_all:
            await self._trees.looked(room, PassedOver())
