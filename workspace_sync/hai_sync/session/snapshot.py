"""Reads both sides of a workspace at the same time: the local tree and the tree on the server.

A daemon keeps the last snapshot, so that the next one reads only what has changed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hai_sync.core.entry import Entry, Kind, Tree, ancestors, is_within
from hai_sync.core.reconcile import differing_paths
from hai_sync.core.reconcile_options import Mode, Outcome
from hai_sync.index import Index
from hai_sync.remote.endpoint import Remote, existing_targets
from hai_sync.rescan import rescan
from hai_sync.scan import Filter, Scan, ScanCache, build_ignore, complete_tree, scan
from hai_sync.session.options import Report, SyncOptions
from hai_sync.transition.apply import Result
from hai_sync.workspace_dir import WorkspaceDir

if TYPE_CHECKING:
    from hai_sync.remote.uploader import PushResult


@dataclass(slots=True)
class ThreeWaySnapshot:
    """The trees of both sides, and that of the last sync."""

    base: Tree
    local: Tree
    remote: Tree
    revision: int
    scan: Scan
    may_differ: set[str]  # a superset of the paths where the three trees differ
    # paths assumed to be equal by their size, which the next sync compares
    assumed_equal: set[str] = field(default_factory=set)
    # paths on the server that cannot be synced, with the reason
    passed_over: Mapping[str, str] = field(default_factory=dict)
    # files on the cluster that change while they are read, with the reason why they are not synced
    changing_remotely: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SnapshotReader:
    """Reads snapshots of one workspace, one after the other."""

    workspace: WorkspaceDir
    index: Index
    remote: Remote
    last: ThreeWaySnapshot | None = None  # the state after the last sync
    has_newer_revision: bool = False  # whether the server has a newer revision than `last`
    remote_changed: bool = False  # whether files on the server differ from its newest revision
    _loaded: tuple[Tree, Tree, int] | None = None  # base, remote tree and revision from the index

    def retain(self, snapshot: ThreeWaySnapshot | None) -> None:
        """Keep the state after a sync. None means that the index must be read again."""
        self.last, self._loaded = snapshot, None

    async def read(self, options: SyncOptions, hints: set[str] | None) -> ThreeWaySnapshot | Report:
        """Return a snapshot, or a report if there is nothing to push. Only local paths in `hints` may have changed."""
        request = asyncio.create_task(self._newest_revision(options, hints))
        cancelled = threading.Event()
        try:
            local_scan, cache = await asyncio.to_thread(self._scan, options, hints, cancelled)
        except BaseException:
            cancelled.set()  # the program could not end before its threads
            request.cancel()
            raise
        revision = await request
        if local_scan.outward_links:
            targets = {link.target for link in local_scan.outward_links.values()}
            existing = await existing_targets(self.remote.connection, targets)
            local_scan.resolve_outward_links(options.filter.links, existing)
        if local_scan.previous is None and not options.dry_run and options.filter == Filter():
            self.index.save_ignored(local_scan.ignored_paths)
        if options.rules.mode is Mode.PUSH and self._nothing_to_push(local_scan, revision, options):
            return Report(
                revision=revision, files=count_files(local_scan), ignored=local_scan.ignored
            )
        return await self._read_remote(options, local_scan, cache, revision)

    async def _newest_revision(self, options: SyncOptions, hints: set[str] | None) -> int:
        """Return the newest revision of the server. If the workspace was created again there, the base is dropped.

        With hints alone no call is made: if the revision is too old, the server refuses the push.
        """
        must_ask = options.scan_remote or self.remote_changed or self.has_newer_revision
        if self.last is not None and hints is not None and not must_ask:
            return self.last.revision
        self.has_newer_revision = False
        workspace = await self.remote.get()
        created = workspace.create_time.ToJsonString()
        recorded = self.index.fact("created")
        if recorded != created:
            if recorded:
                self.index.clear_base()
                self.retain(None)
            self.index.set_facts(created=created)
        if self.index.fact("made") != (made := workspace.create_time.SerializeToString().hex()):
            self.index.set_facts(made=made)
        return workspace.revision

    def _nothing_to_push(self, local_scan: Scan, revision: int, options: SyncOptions) -> bool:
        """Return whether a push can end without reading the remote tree."""
        return (
            local_scan.unchanged
            and not local_scan.problems
            and self.index.fact("clean") == "yes"
            and str(revision) == self.index.fact("revision")
            and not (options.rules.mirror or options.rules.overwrite)
            and (self.last is not None or not options.keep_in_memory)
        )

    def _scan(
        self, options: SyncOptions, hints: set[str] | None, cancelled: threading.Event
    ) -> tuple[Scan, ScanCache]:
        """Scan the local tree, only at the hinted paths if the last snapshot allows that."""
        if self.last is not None and hints is not None and not options.verify:
            base = self.last.base
            rescanned = rescan(self.last.scan, hints, options.filter, lambda: base)
            if rescanned is not None:
                return rescanned, ScanCache(rescanned.fingerprints, lambda: rescanned.tree)
        cache = replace(self._scan_cache(options), cancelled=cancelled.is_set)
        return scan(self.workspace.root, cache, options.filter), cache

    def _scan_cache(self, options: SyncOptions) -> ScanCache:
        """Return the cache of a complete scan, which reads entries from the index only when they are needed."""
        entries: dict[str, Entry] = {}

        def cached_entries() -> Mapping[str, Entry]:
            if not entries:
                entries.update(self.index.entries(self._last_state()[0]))
            return entries

        return ScanCache(
            self.index.fingerprints(),
            cached_entries,
            int(self.index.fact("looked_ns", "0")),
            self.index.fact("filter") == options.filter.cache_key(),
            options.verify,
            base=lambda: self._last_state()[0],
        )

    async def _read_remote(
        self, options: SyncOptions, local_scan: Scan, cache: ScanCache, revision: int
    ) -> ThreeWaySnapshot:
        """Complete the snapshot with the remote tree. The server sends only changes since the last known revision."""
        local = await asyncio.to_thread(complete_tree, local_scan, cache)
        base, remote, known_revision = await asyncio.to_thread(self._last_state)
        scan_remote = self.remote_changed or (
            options.scan_remote and options.rules.mode is not Mode.PUSH
        )
        if revision != known_revision or scan_remote:
            since = known_revision if known_revision <= revision else 0
            revision, remote = await self.remote.tree(remote, since, 0 if scan_remote else revision)
            self.remote_changed = False
        may_differ = await asyncio.to_thread(self._differing, base, local, remote, local_scan)
        passed_over = self._passed_over(options, local_scan)
        return ThreeWaySnapshot(
            base, local, remote, revision, local_scan, may_differ, passed_over=passed_over
        )

    def _passed_over(self, options: SyncOptions, local_scan: Scan) -> dict[str, str]:
        """Return the paths that the server cannot sync, except ignored ones. A push does not read them."""
        if options.rules.mode is Mode.PUSH:
            return {}
        is_hidden = build_ignore(options.filter, local_scan.rule_sets).is_hidden
        reported = self.remote.passed_over.items()
        return {
            p: reason for p, reason in reported if not (is_hidden(p, False) or is_hidden(p, True))
        }

    def _differing(self, base: Tree, local: Tree, remote: Tree, local_scan: Scan) -> set[str]:
        """Return the paths where the trees may differ. After a rescan only changed paths are added to the last ones."""
        previous = self.last
        if (
            previous is not None
            and local_scan.previous is previous.scan
            and remote is previous.remote
        ):
            return previous.may_differ | local_scan.changed.keys() | local_scan.removed
        return differing_paths(base, local, remote)

    def _last_state(self) -> tuple[Tree, Tree, int]:
        """Return base, remote tree and revision as of the last sync."""
        if self.last is not None:
            return self.last.base, self.last.remote, self.last.revision
        if self._loaded is None:
            base = self.index.base()
            revision = int(self.index.fact("revision", "0"))
            self._loaded = base, self.index.remote(base), revision
        return self._loaded


def trees_after_push(
    local: Tree, remote: Tree, entries: Mapping[str, Entry | None]
) -> tuple[Tree, Tree]:
    """Return both trees after a push, which has hashed the local files."""
    new_local, new_remote = dict(local), dict(remote)
    for path, entry in entries.items():
        if entry is None:
            new_remote.pop(path, None)
            new_local.pop(path, None)  # it may have vanished before it was sent
            continue
        new_remote[path] = entry
        if path in new_local:
            new_local[path] = entry
    return new_local, new_remote


def scanned_paths(scan: Scan, applied: Result, push_result: PushResult | None) -> set[str]:
    """Return the paths whose fingerprints must be saved."""
    paths = set(scan.changed) | applied.fingerprints.keys()
    return paths | push_result.fingerprints.keys() if push_result else paths


def build_report(snapshot: ThreeWaySnapshot, outcome: Outcome) -> Report:
    """Return the report of a plan, before it is executed."""
    return Report(
        outcome,
        revision=snapshot.revision,
        files=count_files(snapshot.scan),
        bytes=sum(entry.size for entry in snapshot.local.values()),
        ignored=snapshot.scan.ignored,
        problems=snapshot.scan.problems | snapshot.changing_remotely,
        skipped=dict(snapshot.scan.skipped),
        passed_over=dict(snapshot.passed_over),
        local=snapshot.local,
        remote=snapshot.remote,
    )


def count_files(scan: Scan) -> int:
    """Return the number of files and links."""
    return sum(1 for each in scan.fingerprints.values() if each != b"d")


def is_directory(remote: Tree, base: Tree, path: str) -> bool:
    """Return whether a path that does not exist locally is a directory in the remote tree or the base."""
    entry = remote.get(path) or base.get(path)
    return entry is not None and entry.kind is Kind.DIRECTORY


def restrict_tree(tree: Tree, tops: Sequence[str]) -> Tree:
    """Return the part of a tree at or below some paths, with the directories above them."""
    above = {each for top in tops for each in ancestors(top)}
    return {p: e for p, e in tree.items() if p in above or any(is_within(p, top) for top in tops)}


def assume_equal_by_size(snapshot: ThreeWaySnapshot, base: Tree, candidates: Iterable[str]) -> None:
    """Give local files the digests of remote files of equal size, for --no_checksum."""
    for path in candidates:
        entry, other = snapshot.scan.tree[path], snapshot.remote.get(path) or base.get(path)
        if other is not None and other.kind is Kind.FILE and other.size == entry.size:
            snapshot.scan.tree[path] = replace(entry, digest=other.digest)
            snapshot.assumed_equal.add(path)
