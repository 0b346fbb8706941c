"""Watches the workspaces that clients follow, and commits what programs write there as revisions.

A workspace without followers is not watched. It is scanned when a client requests its tree.
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

MIN_SCAN_INTERVAL_SECONDS = 0.5  # A program that writes all the time makes two revisions a second
_PAUSE_FACTOR = 4  # Pause for so many times the duration of a scan: scans take a fifth of the time
_RETRY_SECONDS = 5.0  # after a failed scan
log = structlog.get_logger(__name__)


class ClusterChangeWatcher:
    """One watch per workspace, for any number of followers. Full scans run one at a time."""

    def __init__(self, registry: WorkspaceRegistry, trees: Trees) -> None:
        self._registry = registry
        self._trees = trees
        self._followers: dict[Key, int] = {}
        self._watches: dict[Key, asyncio.Task[None]] = {}
        self._full_scan_lock = asyncio.Lock()

    @asynccontextmanager
    async def watching(self, workspace: OpenWorkspace) -> AsyncIterator[None]:
        """Watch a workspace during the block."""
        key = workspace.key
        self._followers[key] = self._followers.get(key, 0) + 1
        if key not in self._watches:
            self._watches[key] = asyncio.create_task(self._watch(workspace))
        try:
            yield
        finally:
            self._followers[key] -= 1
            if not self._followers[key]:
                del self._followers[key]
                watch = self._watches.pop(key)
                watch.cancel()
                await asyncio.wait({watch})

    async def _watch(self, workspace: OpenWorkspace) -> None:
        last_problem = ""
        while True:
            try:
                async with aclosing(
                    tree_events.watch_changes(self._registry, workspace.files.tree)
                ) as changes:
                    async for paths in changes:
                        started_at = time.monotonic()
                        await self._scan(workspace, paths)
                        elapsed_seconds, last_problem = time.monotonic() - started_at, ""
                        await asyncio.sleep(
                            max(MIN_SCAN_INTERVAL_SECONDS, _PAUSE_FACTOR * elapsed_seconds)
                        )
            except HaiError as error:
                if str(error) != last_problem:
                    last_problem = str(error)
                    log.warning(
                        "cannot watch a workspace", workspace=workspace.key, why=last_problem
                    )
            await asyncio.sleep(_RETRY_SECONDS)

    async def _scan(self, workspace: OpenWorkspace, paths: Collection[str] | None) -> None:
        if paths is not None:
            await self._trees.scan(workspace, PassedOver(), paths)
            return
        async with self._full_scan_lock:
            await self._trees.scan(workspace, PassedOver())
