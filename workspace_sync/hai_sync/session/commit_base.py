"""Saves the state of both sides after a sync as the base of the next one."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from hai_sync.core.entry import Tree
from hai_sync.core.reconcile import rebase
from hai_sync.index import Index
from hai_sync.session.options import Report, SyncOptions
from hai_sync.session.snapshot import ThreeWaySnapshot, scanned_paths
from hai_sync.transition.apply import Result
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import WorkspaceDir

if TYPE_CHECKING:
    from hai_sync.remote.uploader import PushResult


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The snapshot of a sync, both trees after it, and what was transferred."""

    snapshot: ThreeWaySnapshot
    local: Tree
    remote: Tree
    applied: Result
    push_result: PushResult | None
    report: Report


@dataclass(frozen=True, slots=True)
class PendingBase:
    """The new base, in an open transaction of the index. The server may still refuse the push."""

    result: SyncResult
    base: Tree
    may_differ: set[str]  # paths where both sides may differ


def write_base(index: Index, result: SyncResult) -> PendingBase:
    """Write the new base in a transaction, which the caller commits (`commit_base`) or rolls back."""
    scan, local = result.snapshot.scan, result.local
    scan.fingerprints |= result.applied.fingerprints | (
        result.push_result.fingerprints if result.push_result else {}
    )
    index.begin()
    assumed_equal = result.snapshot.assumed_equal
    affected = _affected_paths(result) | index.remote_differences() | assumed_equal
    base = rebase(result.snapshot.base, local, result.remote, affected - assumed_equal)
    scanned = scanned_paths(scan, result.applied, result.push_result) - assumed_equal
    changed = {p: local[p] for p in scanned if p in local}
    removed = scan.removed | {c.path for c in result.applied.done if c.new is None}
    index.save_scan(changed, scan.fingerprints, removed - changed.keys())
    index.save_base(affected, base, result.remote)
    may_differ = {p for p in affected if not (base.get(p) == local.get(p) == result.remote.get(p))}
    return PendingBase(result, base, may_differ | assumed_equal)


def commit_base(
    index: Index, pending: PendingBase, workspace: WorkspaceDir, options: SyncOptions
) -> tuple[ThreeWaySnapshot, str]:
    """Commit the base. Return the snapshot for the next sync of this session, and its generation."""
    result, base, may_differ = pending.result, pending.base, pending.may_differ
    scan, local, revision = result.snapshot.scan, result.local, result.report.revision
    clean = not result.snapshot.assumed_equal and all(
        base.get(p) == local.get(p) for p in may_differ
    )
    facts = {
        "revision": str(revision),
        "looked_ns": str(scan.scanned_at_ns),
        "filter": options.filter.cache_key(),
        "clean": "yes" if clean else "no",
        "synced": str(time.time()),
        "generation": os.urandom(16).hex(),
    }
    if result.push_result is not None:
        facts["unfinished"] = "no"
    index.put_facts(facts)
    index.commit()
    VersionStore(workspace.versions_dir).prune(time.time())
    scan.tree, scan.changed, scan.removed, scan.previous = dict(local), {}, set(), None
    snapshot = ThreeWaySnapshot(base, local, result.remote, revision, scan, may_differ)
    return snapshot, facts["generation"]


class BaseWriter:
    """Writes the base in a thread while the server commits. An error within the block rolls the base back."""

    def __init__(
        self, index: Index, make_result: Callable[[PushResult | None], SyncResult]
    ) -> None:
        self._index = index
        self._make = make_result
        self._task: asyncio.Task[PendingBase] | None = None

    def begin(self, push_result: PushResult | None) -> None:
        """Start writing. Call this when only the last response of the server is missing."""
        work = asyncio.to_thread(lambda: write_base(self._index, self._make(push_result)))
        self._task = asyncio.create_task(work)

    async def commit(
        self, workspace: WorkspaceDir, options: SyncOptions
    ) -> tuple[ThreeWaySnapshot, str]:
        assert self._task is not None
        pending = await asyncio.shield(self._task)
        return await asyncio.to_thread(commit_base, self._index, pending, workspace, options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is not None and self._task is not None:
            with suppress(Exception):  # the exception of the block takes precedence
                await asyncio.shield(self._task)
            self._index.rollback()


def _affected_paths(result: SyncResult) -> set[str]:
    """Return the paths whose base this sync may change."""
    outcome = result.report.outcome
    changed = {change.path for change in (*outcome.to_local, *outcome.to_remote)}
    return (
        result.snapshot.may_differ
        | changed
        | (result.push_result.entries.keys() if result.push_result else set())
    )
