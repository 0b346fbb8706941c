"""Nodes with their tenants, and a version for each: when it or its tenants changed last.

All streams and answers share one board; it is counted anew only when a task or a node changed. Versions are
microseconds, so they grow over restarts of the server too, after which every node counts as changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hai.v1 import node_pb2 as pb
from hai_backend.api.nodes.convert import node_to_proto
from hai_backend.api.protocols import Cluster, TaskManager
from hai_backend.api.request.convert_time import timestamp
from hai_backend.api.tasks import watch
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.node import Node
from hai_backend.domain.task import Task, holders

_REST = 8.0  # after a count, rest for so many times its duration: in a large cluster it takes a ninth of the loop


class Tenant(NamedTuple):
    """A rank on a node. (Plain: there are many.)"""

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
    """Ask `refresh` first; the rest answers from then."""

    def __init__(self, cluster: Cluster, task_manager: TaskManager, clock: Clock) -> None:
        self._cluster = cluster
        self._task_manager = task_manager
        self._clock = clock
        self._seen = (-1, -1)
        self._rests_until = 0.0
        self._entries: dict[str, tuple[int, Entry]] = {}
        self.version = 0

    def refresh(self) -> None:
        """Count anew if anything changed."""
        seen = (self._cluster.feed.version, self._task_manager.feed.version)
        if seen == self._seen:
            return
        self._seen, began = seen, time.monotonic()
        self._count()
        ended = time.monotonic()
        self._rests_until = ended + max(watch.BUNDLE_SECONDS, _REST * (ended - began))

    def _count(self) -> None:
        tenants = tenants_by_node(self._task_manager.unfinished().values())
        nodes = self._cluster.nodes()
        changed = [
            entry
            for node in nodes.values()
            if (entry := self._changed(node, tenants.get(node.name, []))) is not None
        ]
        if changed or len(nodes) != len(self._entries):
            self.version = max(self.version + 1, int(self._clock.now() * 1e6))
        kept = {name: self._entries[name] for name in nodes if name in self._entries}
        self._entries = {**kept, **{e.node.name: (self.version, e) for e in changed}}

    def _changed(self, node: Node, tenants: list[Tenant]) -> Entry | None:
        """None: all is as it was. Nodes are replaced when they change."""
        _, known = self._entries.get(node.name, (0, None))
        if known and (known.node is node or known.node == node) and [*known.tenants] == tenants:
            return None
        return Entry(node, tuple(tenants))

    def nodes(self, group: str = "", after: int = 0) -> list[tuple[int, Entry]]:
        """Nodes of a group (empty: all) that changed after a version, by name."""
        return [
            (version, entry)
            for name, (version, entry) in sorted(self._entries.items())
            if version > after and group in ("", entry.node.group)
        ]

    def node(self, name: str) -> tuple[int, Entry] | None:
        """One node."""
        return self._entries.get(name)

    async def beyond(self, version: int) -> None:
        """Return soon after a node has a larger version. Tasks change much more often than who is on which node."""
        while True:
            await asyncio.sleep(self._rests_until - time.monotonic())
            self.refresh()
            if self.version > version:
                return
            await self._change()

    async def _change(self) -> None:
        waits = [
            asyncio.ensure_future(self._cluster.feed.beyond(self._seen[0])),
            asyncio.ensure_future(self._task_manager.feed.beyond(self._seen[1])),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def entry_to_proto(version: int, entry: Entry, sees: Callable[[int], bool]) -> pb.Node:
    """`sees` says whether the caller may know the name of a task."""
    tenants = [
        pb.NodeTenant(
            task_id=t.task_id,
            task_name=t.name if sees(t.task_id) else "",
            user=t.user,
            run=t.run,
            rank=t.rank,
            silent_since_time=timestamp(t.silent_since),
        )
        for t in entry.tenants
    ]
    return node_to_proto(entry.node, tenants, version)


def tenants_by_node(tasks: Iterable[Task]) -> dict[str, list[Tenant]]:
    """Ranks that are on nodes, by the name of the node."""
    found: dict[str, list[Tenant]] = {}
    for task, run, rank in holders(tasks):
        name, silent = task.spec.name, rank.silent_since
        tenant = Tenant(task.id, task.user, run.number, rank.index, name, silent)
        found.setdefault(rank.node, []).append(tenant)
    return found
