"""Keeps the tenants of every node (the ranks on it), and a version that grows when a node or its tenants change.

All streams and calls share one table, which is computed again only when a task or a node has changed. Versions are
microseconds of time, so they also grow over restarts of the server. After a restart every node counts as changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from hai_backend.api.protocols import Cluster, TaskManager
from hai_backend.api.watch import cache as watch
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.node import Node
from hai_backend.domain.task import Task, holders

_MAX_LISTS = 1000  # that are kept: their keys come from callers
_PAUSE_FACTOR = 8.0  # Streams pause for so many times the duration of a refresh: it takes a ninth of the loop at most


class Tenant(NamedTuple):
    """A rank on a node. A named tuple, because there are many of them."""

    task_id: int
    user: str
    run: int
    rank: int
    name: str
    silent_since: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    node: Node
    tenants: tuple[Tenant, ...]


class NodeTenants:
    """The tenants of all nodes. `refresh` updates them; the other methods return the state of the last refresh."""

    def __init__(self, cluster: Cluster, task_manager: TaskManager, clock: Clock) -> None:
        self._cluster = cluster
        self._task_manager = task_manager
        self._clock = clock
        self._refreshed_versions = (-1, -1)  # of the nodes and the tasks
        self._paused_until = 0.0
        self._entries: dict[str, tuple[int, Entry]] = {}
        self._lists: dict[tuple[str, int], list[tuple[int, Entry]]] = {}  # as `nodes` returns them
        self._changes = ChangeFeed()
        self._stream_count = 0
        self._refresher: asyncio.Task[None] | None = None
        self.version = 0

    def refresh(self) -> None:
        """Compute the table again if a node or task has changed."""
        versions = (self._cluster.feed.version, self._task_manager.feed.version)
        if versions == self._refreshed_versions:
            return
        self._refreshed_versions, began_at = versions, time.monotonic()
        self._compute()
        ended_at = time.monotonic()
        self._paused_until = ended_at + max(
            watch.BUNDLE_SECONDS,
            watch.SECONDS_PER_STREAM * self._stream_count,
            _PAUSE_FACTOR * (ended_at - began_at),
        )

    def _compute(self) -> None:
        tenants = tenants_by_node(self._task_manager.unfinished().values())
        nodes = self._cluster.nodes()
        changed = [
            entry
            for node in nodes.values()
            if (entry := self._changed_entry(node, tenants.get(node.name, []))) is not None
        ]
        if changed or len(nodes) != len(self._entries):
            self.version = max(self.version + 1, int(self._clock.now() * 1e6))
            self._lists = {}
        existing = {name: self._entries[name] for name in nodes if name in self._entries}
        self._entries = {**existing, **{e.node.name: (self.version, e) for e in changed}}
        self._changes.publish(self.version)

    def _changed_entry(self, node: Node, tenants: list[Tenant]) -> Entry | None:
        """Return the new entry of a node, or None if nothing has changed."""
        _, old = self._entries.get(node.name, (0, None))
        if old and (old.node is node or old.node == node) and [*old.tenants] == tenants:
            return None
        return Entry(node, tuple(tenants))

    def nodes(self, group: str = "", after_version: int = 0) -> list[tuple[int, Entry]]:
        """Return the nodes that changed after a version, by name. An empty group means all groups."""
        if (group, after_version) not in self._lists:
            if len(self._lists) >= _MAX_LISTS:
                self._lists = {}
            self._lists[group, after_version] = [
                (version, entry)
                for name, (version, entry) in sorted(self._entries.items())
                if version > after_version and group in ("", entry.node.group)
            ]
        return self._lists[group, after_version]

    def node(self, name: str) -> tuple[int, Entry] | None:
        return self._entries.get(name)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count a stream that calls `wait_for_change`. One task refreshes the table for all streams."""
        if self._refresher is None:
            self._refresher = asyncio.create_task(self._keep_fresh(), name="node-tenants")
        self._stream_count += 1
        try:
            yield
        finally:
            self._stream_count -= 1
            if not self._stream_count:
                self._refresher.cancel()
                self._refresher = None

    async def wait_for_change(self, version: int) -> None:
        """Return soon after a node has a larger version. Most changes of tasks leave all nodes as they are."""
        await self._changes.beyond(version)

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self._paused_until - time.monotonic())
            self.refresh()
            await self._wait_for_feeds()

    async def _wait_for_feeds(self) -> None:
        node_version, task_version = self._refreshed_versions
        waits = [
            asyncio.ensure_future(self._cluster.feed.beyond(node_version)),
            asyncio.ensure_future(self._task_manager.feed.beyond(task_version)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def tenants_by_node(tasks: Iterable[Task]) -> dict[str, list[Tenant]]:
    """Return the ranks on each node, by the name of the node."""
    tenants: dict[str, list[Tenant]] = {}
    for task, run, rank in holders(tasks):
        name, silent = task.spec.name, rank.silent_since
        tenant = Tenant(task.id, task.user, run.number, rank.index, name, silent)
        tenants.setdefault(rank.node, []).append(tenant)
    return tenants
