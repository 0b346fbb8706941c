"""The current nodes. They combine the reports of the launcher with the settings of operators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from hai.redaction import redact
from hai_backend.controllers.aio.change_feed import ChangeFeed
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.errors import NotFound
from hai_backend.domain.node import Group, Labels, Node, NodeState
from hai_backend.scheduler.policy.group_policy import has_valid_policy
from hai_backend.store.base import Store

log = structlog.get_logger(__name__)

_UNCONFIRMED, _REMOVED = "not seen since the server started", "removed"
_RETENTION_SECONDS = 30 * 24 * 3600.0


class SuspendOn(Protocol):
    """Suspends every task that has a rank on a node."""

    async def __call__(self, node: str, reason: str) -> None: ...


class Cluster:
    """Nodes in memory and in the store.

    The versions of `feed` are times in microseconds, so that they also increase over restarts.
    """

    def __init__(self, store: Store, clock: Clock, changed: Callable[[], None]) -> None:
        self._store = store
        self._clock = clock
        self._changed = changed
        self._nodes: dict[str, Node] = {}
        self._groups: dict[str, Group] = {}
        self._named: dict[str, Group] = {}  # groups that are named by nodes but not declared
        self._packed_groups: Collection[str] = ()  # those of them whose nodes are shared
        self._stored: dict[str, Node] = {}
        # nodes that the launcher has not reported since the start of the server
        self._unconfirmed: set[str] = set()
        self._versions: dict[str, int] = {}
        self._writing = asyncio.Lock()  # held from the reading of a node until its change is stored
        self.feed = ChangeFeed()
        # held while runs are placed, and while the rules of a group change
        self.placement_lock = asyncio.Lock()
        # set once by server.leader.components, because the two components refer to each other
        self.suspend_on: SuspendOn | None = None

    async def load(self) -> None:
        """Read the stored nodes and groups. Nodes are not ready until the launcher reports them."""
        self._groups = {g.name: g for g in await self._store.groups()}
        for group in self._groups.values():
            if not has_valid_policy(group):
                log.warning("a group's policy cannot be read: the server's holds", group=group.name)
        for node in await self._stored_nodes():
            reason = node.reason if node.cordoned else _UNCONFIRMED
            self._stored[node.name] = node
            self._unconfirmed.add(node.name)
            self._put(replace(node, state=NodeState.NOT_READY, reason=reason))

    async def _stored_nodes(self) -> list[Node]:
        """Return the stored nodes. Delete unlabelled nodes that were removed more than 30 days ago."""
        stored, long_ago = await self._store.nodes(), self._clock.now() - _RETENTION_SECONDS
        gone = {
            node.name
            for node in stored
            if node.reason == _REMOVED and not node.labels and node.updated_at < long_ago
        }
        await self._store.delete_nodes(gone)
        return [node for node in stored if node.name not in gone]

    def nodes(self) -> Mapping[str, Node]:
        return self._nodes

    def versions(self) -> Mapping[str, int]:
        """Return the version of the last change of each node, by name."""
        return self._versions

    def groups(self) -> Mapping[str, Group]:
        """Return the declared groups, and the groups that only nodes name."""
        return {**self._named, **self._groups}

    async def update_nodes(
        self, nodes: Sequence[Node], packed_groups: Collection[str] = ()
    ) -> list[Node]:
        """Update the nodes from a report of the launcher. Return the lost nodes: missing, or no longer ready.

        Nodes of `packed_groups` are shared, unless the group is declared.
        """
        self._packed_groups = packed_groups
        self._named = {name: self._undeclared(name) for name in self._named}
        names = {node.name for node in nodes}
        gone = [node for node in self._nodes.values() if node.name not in names]
        removed = [replace(n, state=NodeState.NOT_READY, reason=_REMOVED) for n in gone]
        async with self._writing:
            found = [self._with_operator_settings(node) for node in [*nodes, *removed]]
            changed = [node for node in found if node != self._nodes.get(node.name)]
            lost = [node for node in found if self._is_lost(node)]
            await self._save(changed)
        self._unconfirmed.clear()
        return lost

    def _with_operator_settings(self, node: Node) -> Node:
        """Return the reported node with the settings of operators."""
        existing, now = self._nodes.get(node.name), self._clock.now()
        if existing is None:
            return replace(node, updated_at=now)
        reason = existing.reason if existing.cordoned else node.reason
        combined = replace(node, cordoned=existing.cordoned, reason=reason, labels=existing.labels)
        new = replace(combined, updated_at=existing.updated_at)
        return (
            new if new in (existing, self._stored.get(node.name)) else replace(new, updated_at=now)
        )

    def _is_lost(self, node: Node) -> bool:
        """Return whether a node is not ready now, but was ready or not yet reported since the start of the server."""
        existing = self._nodes.get(node.name)
        was_usable = existing and (
            existing.state is NodeState.READY or node.name in self._unconfirmed
        )
        return bool(was_usable) and node.state is NodeState.NOT_READY

    async def set_cordoned(self, name: str, cordoned: bool, reason: str, by: str) -> Node:
        """Exclude a node from scheduling, or include it again. Raises NotFound."""
        why = f"{redact(reason) or 'cordoned'} ({by})" if cordoned else ""

        def change(node: Node) -> Node:
            if not cordoned and not node.cordoned:
                return node  # its reason comes from the launcher
            return replace(node, cordoned=cordoned, reason=why)

        return await self._change(name, change)

    async def set_labels(self, name: str, change: Callable[[Labels], Labels]) -> Node:
        """Replace the labels of a node by the result of `change`. Raises NotFound, and the errors of `change`."""
        return await self._change(name, lambda node: replace(node, labels=change(node.labels)))

    async def drain(self, name: str, reason: str, by: str) -> Node:
        """Exclude a node from scheduling, and suspend the tasks on it. Raises NotFound."""
        node = await self.set_cordoned(name, True, reason or "drained", by)
        assert self.suspend_on is not None
        why = f": {reason}" if reason else ""
        await self.suspend_on(name, f"node {name} is being drained by {by}{why}")
        return node

    async def save_group(self, group: Group) -> None:
        await self._store.save_group(group)
        self._groups[group.name] = group
        self._changed()

    async def _change(self, name: str, change: Callable[[Node], Node]) -> Node:
        async with self._writing:
            if name not in self._nodes:
                raise NotFound(f"there is no node {name!r}; `hai nodes` lists them")
            node = replace(change(self._nodes[name]), updated_at=self._clock.now())
            await self._save([node])
            return node

    async def _save(self, nodes: Sequence[Node]) -> None:
        """Store all changes in one transaction, because a report may contain ten thousand nodes."""
        new = [node for node in nodes if node != self._stored.get(node.name)]
        await self._store.save_nodes(new)
        for node in nodes:
            self._stored[node.name] = node
            self._put(node)
        if nodes:
            self._changed()

    def _undeclared(self, name: str) -> Group:
        return Group(name, packed=name in self._packed_groups)

    def _put(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._named.setdefault(node.group, self._undeclared(node.group))
        version = max(self.feed.version + 1, int(self._clock.now() * 1e6))
        self._versions[node.name] = version
        self.feed.publish(version)
