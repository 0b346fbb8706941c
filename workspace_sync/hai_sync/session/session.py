"""Runs syncs of one workspace.

Steps of a sync: read both sides (at the same time), hash files where the decision needs it, reconcile, guard, change
the local side, push, commit the base. It starts again when the server has a new revision meanwhile, or a file changes
while it is read.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hai.client.connection.backoff import delays
from hai.client.connection.transport import is_loopback
from hai.client.errors import Conflict, HaiError, LimitReached, Unreachable
from hai_sync.core.diff import Change, apply_changes
from hai_sync.core.reconcile_options import Mode, Outcome
from hai_sync.errors import FileChanged, RemoteFileChanged
from hai_sync.index import Index, is_corruption
from hai_sync.remote.endpoint import (
    MAX_ATTEMPTS,
    SERVER_LOST_REASONS,
    Remote,
    client_id,
    describe_process,
)
from hai_sync.session.commit_base import BaseWriter, SyncResult
from hai_sync.session.lock import lock_workspace
from hai_sync.session.options import (
    Listener,
    NullListener,
    Report,
    SyncOptions,
    count_files_and_bytes,
)
from hai_sync.session.ownership import claim_index
from hai_sync.session.plan import apply_guards, make_plan, refuse_case_collisions
from hai_sync.session.snapshot import (
    SnapshotReader,
    ThreeWaySnapshot,
    build_report,
    trees_after_push,
)
from hai_sync.transition.apply import Result
from hai_sync.transition.safe_replace import FaultHook
from hai_sync.workspace_dir import TEMPORARY, WorkspaceDir

if TYPE_CHECKING:
    from hai_sync.remote.uploader import PushResult

MAX_SYNC_ATTEMPTS = 20  # while either side changes during the sync


@dataclass(slots=True)
class Session:
    """Syncs one workspace, any number of times, one after the other."""

    workspace: WorkspaceDir
    index: Index
    remote: Remote
    listener: Listener = field(default_factory=NullListener)
    fault_hook: FaultHook = lambda step: None
    _hints: set[str] | None = (
        None  # paths that may have changed since the last sync; None if unknown
    )
    _change_counts: Counter[str] = field(default_factory=Counter)
    _generation: str = ""
    _push_failures: int = 0  # number of attempts since the connection broke during a push
    _reader: SnapshotReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = SnapshotReader(self.workspace, self.index, self.remote)

    def hint(self, paths: Iterable[str]) -> None:
        """Add paths that may have changed since the last sync. Other paths have not."""
        if self._hints is not None:
            self._hints.update(paths)

    @property
    def revision(self) -> int:
        """The newest known revision, or -1 if it is unknown."""
        snapshot = self._reader.last
        return snapshot.revision if snapshot is not None else -1

    def note_new_revision(self) -> None:
        self._reader.has_newer_revision = True

    def forget_hints(self) -> None:
        """Make the next sync scan everything."""
        self._hints = None

    async def sync(self, options: SyncOptions) -> Report:
        """Sync, or report why not. A dry run does not wait for the lock. Raises HaiError."""
        self.workspace.require()
        try:
            return await self._sync_claimed(options)
        except sqlite3.DatabaseError as error:
            if not is_corruption(error):
                raise
            self.index.recreate()
            return await self._sync_claimed(options)

    async def _sync_claimed(self, options: SyncOptions) -> Report:
        """Check the owner of the index, take the lock, and sync."""
        claim_index(self.workspace, self.index)
        if options.dry_run:
            return await self._sync(options)
        async with lock_workspace(
            self.workspace.state_dir, lambda: self.listener.stage("wait", 0, 0)
        ):
            if (self.workspace.private_dir / TEMPORARY).exists():
                from hai_sync.session.apply_remote import clean_temp_dir

                await asyncio.to_thread(clean_temp_dir, self.workspace)
            return await self._sync(options)

    async def _sync(self, options: SyncOptions) -> Report:
        """Make attempts until one succeeds or fails permanently. A change on either side causes a new attempt."""
        if self.index.fact("generation") != self._generation:
            self._reader.retain(None)  # another process has synced since
            self._hints = None
        last: Exception | None = None
        self._push_failures, retry_delays = 0, delays()
        for _ in range(MAX_SYNC_ATTEMPTS):
            # a daemon retries itself, and after a broken push this loop does
            self.remote.retries = not (options.keep_in_memory or self._push_failures)
            try:
                return await self._attempt_with_hints(options)
            except Conflict as error:
                if error.reason not in ("REVISION_CHANGED", "CONTENTS_MISSING"):
                    raise
                self._reader.remote_changed, last = True, error
            except Unreachable as error:
                if options.keep_in_memory or not self._may_retry(error):  # a daemon retries itself
                    raise
                self._reader.remote_changed, last = True, error
                await asyncio.sleep(next(retry_delays))
            except RemoteFileChanged as error:
                self._reader.remote_changed, last = True, error
                self._change_counts[error.path] += 1
            except FileChanged as error:
                self._change_counts[error.path] += not error.removed
                self.hint([error.path])
                last = error
        if isinstance(last, HaiError):
            raise last
        raise HaiError(f"files change faster than they can be read: {last}", reason="RESTLESS")

    def _may_retry(self, error: Unreachable) -> bool:
        """Return whether to try again, because a push broke and the server may be back."""
        self._push_failures += bool(self._push_failures)  # counts from the first broken push
        return error.reason in SERVER_LOST_REASONS and 0 < self._push_failures <= MAX_ATTEMPTS

    async def _attempt_with_hints(self, options: SyncOptions) -> Report:
        """Run one attempt. Hints that arrive meanwhile are for the next attempt; those of a failed attempt are kept."""
        hints, self._hints = self._hints, set()
        try:
            report, finished = await self._attempt(options, hints)
        except BaseException:
            self._restore_hints(hints)
            raise
        if not finished:
            self._restore_hints(hints)
        return report

    def _restore_hints(self, hints: set[str] | None) -> None:
        self._hints = None if hints is None or self._hints is None else self._hints | hints

    async def _attempt(self, options: SyncOptions, hints: set[str] | None) -> tuple[Report, bool]:
        """Return the report, and whether the hinted paths are synced."""
        snapshot = await self._reader.read(options, hints)
        if isinstance(snapshot, Report):
            return snapshot, self._reader.last is not None
        outcome = await asyncio.to_thread(
            make_plan, snapshot, options, self._change_counts, self.listener
        )
        report = build_report(snapshot, outcome)
        apply_guards(report, snapshot, options)
        local, remote = self.workspace.is_case_insensitive(), self.remote.case_insensitive
        refuse_case_collisions(report, snapshot, local=local, remote=remote)
        if options.dry_run or (report.refused and not options.partial):
            return report, False
        try:
            await self._execute(snapshot, report.outcome, options, report)
        except (LimitReached, Unreachable):
            if options.rules.mode is not Mode.PULL:
                self.index.set_facts(unfinished="yes", clean="no")
            raise
        return report, True

    async def _execute(
        self, snapshot: ThreeWaySnapshot, outcome: Outcome, options: SyncOptions, report: Report
    ) -> None:
        """Execute a plan: change the local side, push, and commit the base."""
        applied = await self._apply_remote(snapshot, outcome)
        report.problems |= applied.problems
        local = apply_changes(snapshot.local, applied.done)
        # a path that could not be changed locally must not be pushed
        changes = [c for c in outcome.to_remote if c.path not in applied.problems]

        def done(push_result: PushResult | None) -> SyncResult:
            pushed = push_result.entries if push_result else {}
            new_local, new_remote = trees_after_push(local, snapshot.remote, pushed)
            report.local = snapshot.local = new_local  # so that the old entries are freed
            return SyncResult(snapshot, new_local, new_remote, applied, push_result, report)

        push_was_interrupted = (
            self.index.fact("unfinished") == "yes" and options.rules.mode is not Mode.PULL
        )
        async with BaseWriter(self.index, done) as base_writer:
            # a push makes the server drop the rest of an interrupted one
            if changes or push_was_interrupted:
                copied_links = snapshot.scan.copied_links
                copies = {
                    p: copied_links.get(at, at)
                    for p, at in outcome.copies.items()
                    if p not in local
                }
                push_result = await self._push(
                    snapshot, changes, {**copied_links, **copies}, options, base_writer
                )
                report.revision, report.wire_bytes = (
                    push_result.revision.number,
                    push_result.wire_bytes,
                )
            else:
                base_writer.begin(None)
            report.done = len(applied.done) + len(changes)
            new_snapshot, self._generation = await base_writer.commit(self.workspace, options)
        self._reader.retain(new_snapshot)
        self._change_counts.clear()

    async def _apply_remote(self, snapshot: ThreeWaySnapshot, outcome: Outcome) -> Result:
        """Fetch the contents of remote changes and apply them to the local tree."""
        if not outcome.to_local:
            return Result()
        from hai_sync.session.apply_remote import RemoteApplier

        applier = RemoteApplier(
            self.workspace,
            outcome.to_local,
            snapshot.local,
            snapshot.scan.fingerprints,
            snapshot.revision,
            self._compress,
            self.fault_hook,
        )
        await applier.fetch(self.remote, self.listener)
        return await asyncio.to_thread(applier.apply)

    async def _push(
        self,
        snapshot: ThreeWaySnapshot,
        changes: list[Change],
        copies: Mapping[str, str],
        options: SyncOptions,
        base_writer: BaseWriter,
    ) -> PushResult:
        """Push changes under a lease. `copies` says where to read contents that are not at their path."""
        from hai_sync.remote.uploader import JOBS, PushRequest, push

        files, size = count_files_and_bytes(changes)
        self.listener.note_changes(changes)
        self.listener.stage("upload", files, size)
        # lets the server replace this client's lease after a crash
        own_id = client_id(self.index.name())
        try:
            async with self.remote.lease(options.purpose, options.break_lease, own_id) as token:
                request = PushRequest(
                    self.workspace.root,
                    changes,
                    snapshot.revision,
                    token,
                    describe_process(options.purpose),
                    copies,
                    self._compress,
                    allow_many_removals=True,  # `apply_guards` has applied the same rule
                    jobs=options.jobs or JOBS,
                    fingerprints=snapshot.scan.fingerprints,
                )
                return await push(self.remote, request, self.listener.progress, base_writer.begin)
        except Unreachable:
            self._push_failures = self._push_failures or 1
            raise

    @property
    def _compress(self) -> bool:
        """Whether to compress contents, which would only cost time on one machine."""
        profile = self.remote.connection.profile
        return not is_loopback(profile.server)
