"""The conductor of a sync.

Order of a sync: look (the local scan and the server's answer at the same time), hash what cannot be
decided otherwise, reconcile, guard, change the local side, push, remember. A server whose revision has
moved on meanwhile, or a file that changes while it is read, starts it anew.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hai.client.connection.backoff import delays
from hai.client.connection.transport import on_loopback
from hai.client.errors import Conflict, HaiError, LimitReached, Unreachable
from hai_sync.core.diff import Change, apply
from hai_sync.core.rules import Mode, Outcome
from hai_sync.errors import Lost, Restless
from hai_sync.index import Index, is_damage
from hai_sync.remote.endpoint import AWAY, TRIES, Remote, author, client_id
from hai_sync.session.commit_base import CommitBase, Done
from hai_sync.session.lock import locked
from hai_sync.session.options import Listener, Report, Silent, SyncOptions, sizes
from hai_sync.session.ownership import claim
from hai_sync.session.plan import decide, guard, refuse_newcomers
from hai_sync.session.snapshot import SnapshotBoth, ThreeWaySnapshot, report_of, with_sent
from hai_sync.transition.apply import Result
from hai_sync.transition.safe_replace import Fault
from hai_sync.workspace_dir import TEMPORARY, WorkspaceDir

if TYPE_CHECKING:
    from hai_sync.remote.uploader import Sent

ATTEMPTS = 20


@dataclass(slots=True)
class Session:
    """Syncs one workspace, any number of times, one after the other."""

    place: WorkspaceDir
    index: Index
    remote: Remote
    listener: Listener = field(default_factory=Silent)
    fault: Fault = lambda step: None
    _hints: set[str] | None = None  # paths that may have changed since; None: unknown
    _restless: Counter[str] = field(default_factory=Counter)
    _generation: str = ""
    _broken: int = 0  # tries since the line broke in a push
    _looking: SnapshotBoth = field(init=False)

    def __post_init__(self) -> None:
        self._looking = SnapshotBoth(self.place, self.index, self.remote)

    def hint(self, paths: Iterable[str]) -> None:
        """These may have changed since the last sync, and nothing else."""
        if self._hints is not None:
            self._hints.update(paths)

    @property
    def revision(self) -> int:
        """The newest revision that we know."""
        sides = self._looking.sides
        return sides.revision if sides is not None else -1

    def moved_on(self) -> None:
        """The server has a newer revision."""
        self._looking.moved_on = True

    def forget(self) -> None:
        """Anything may have changed."""
        self._hints = None

    async def sync(self, wish: SyncOptions) -> Report:
        """Do what is wished, or tell why not. Raises HaiError. Who only looks does not wait for others."""
        self.place.require()
        try:
            return await self._claimed(wish)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self.index.begin_anew()
            return await self._claimed(wish)

    async def _claimed(self, wish: SyncOptions) -> Report:
        claim(self.place, self.index)
        if wish.dry_run:
            return await self._sync(wish)
        async with locked(self.place.state, lambda: self.listener.stage("wait", 0, 0)):
            if (self.place.own / TEMPORARY).exists():
                from hai_sync.session.apply_remote import sweep

                await asyncio.to_thread(sweep, self.place)
            return await self._sync(wish)

    async def _sync(self, wish: SyncOptions) -> Report:
        if self.index.fact("generation") != self._generation:
            self._looking.keep(None)  # another process has synced meanwhile
            self._hints = None
        last: Exception | None = None
        self._broken, waits = 0, delays()
        for _ in range(ATTEMPTS):
            self.remote.patient = not (wish.resident or self._broken)  # else we are
            try:
                return await self._once(wish)
            except Conflict as error:
                if error.reason not in ("REVISION_CHANGED", "CONTENTS_MISSING"):
                    raise
                self._looking.overtaken, last = True, error
            except Unreachable as error:
                if wish.resident or not self._goes_on(error):  # a daemon has patience of its own
                    raise
                self._looking.overtaken, last = True, error
                await asyncio.sleep(next(waits))
            except Lost as error:
                self._looking.overtaken, last = True, error
                self._restless[error.path] += 1
            except Restless as error:
                self._restless[error.path] += not error.gone
                self.hint([error.path])
                last = error
        if isinstance(last, HaiError):
            raise last
        raise HaiError(f"files change faster than they can be read: {last}", reason="RESTLESS")

    def _goes_on(self, error: Unreachable) -> bool:
        """Whether a push broke, and the server may be there again; who never met it is told so at once."""
        self._broken += bool(self._broken)
        return error.reason in AWAY and 0 < self._broken <= TRIES

    async def _once(self, wish: SyncOptions) -> Report:
        """One attempt. Hints that come meanwhile are for the next one; those of a failed one stay."""
        hints, self._hints = self._hints, set()
        try:
            report, finished = await self._attempt(wish, hints)
        except BaseException:
            self._put_back(hints)
            raise
        if not finished:
            self._put_back(hints)
        return report

    def _put_back(self, hints: set[str] | None) -> None:
        self._hints = None if hints is None or self._hints is None else self._hints | hints

    async def _attempt(self, wish: SyncOptions, hints: set[str] | None) -> tuple[Report, bool]:
        """Also whether what was hinted at is done with."""
        seen = await self._looking.look(wish, hints)
        if isinstance(seen, Report):
            return seen, self._looking.sides is not None
        outcome = await asyncio.to_thread(decide, seen, wish, self._restless, self.listener)
        report = report_of(seen, outcome)
        guard(report, seen, wish)
        here, there = self.place.is_case_insensitive(), self.remote.case_insensitive
        refuse_newcomers(report, seen, here=here, there=there)
        if wish.dry_run or (report.refused and not wish.partial):
            return report, False
        try:
            await self._carry_out(seen, report.outcome, wish, report)
        except (LimitReached, Unreachable):
            if wish.rules.mode is not Mode.PULL:
                self.index.set_facts(unfinished="yes", clean="no")
            raise
        return report, True

    async def _carry_out(
        self, sides: ThreeWaySnapshot, outcome: Outcome, wish: SyncOptions, report: Report
    ) -> None:
        arrived = await self._arrive(sides, outcome)
        report.problems |= arrived.problems
        local = apply(sides.local, arrived.done)
        changes = [c for c in outcome.to_remote if c.path not in arrived.problems]

        def done(sent: Sent | None) -> Done:
            ours, theirs = with_sent(local, sides.remote, sent.entries if sent else {})
            report.local = sides.local = ours  # the old entries need not stay
            return Done(sides, ours, theirs, arrived, sent, report)

        left = self.index.fact("unfinished") == "yes" and wish.rules.mode is not Mode.PULL
        async with CommitBase(self.index, done) as noting:
            if changes or left:  # with the next push the server drops what it has of a broken one
                copied = sides.scan.copied
                copies = {
                    p: copied.get(at, at) for p, at in outcome.copies.items() if p not in local
                }
                sent = await self._send(sides, changes, {**copied, **copies}, wish, noting)
                report.revision, report.wire_bytes = sent.revision.number, sent.wire_bytes
            else:
                noting.begin(None)
            report.done = len(arrived.done) + len(changes)
            kept, self._generation = await noting.keep(self.place, wish)
        self._looking.keep(kept)
        self._restless.clear()

    async def _arrive(self, sides: ThreeWaySnapshot, outcome: Outcome) -> Result:
        if not outcome.to_local:
            return Result()
        from hai_sync.session.apply_remote import ApplyRemote

        arrival = ApplyRemote(
            self.place,
            outcome.to_local,
            sides.local,
            sides.scan.signatures,
            sides.revision,
            self._compress,
            self.fault,
        )
        await arrival.fetch(self.remote, self.listener)
        return await asyncio.to_thread(arrival.apply)

    async def _send(
        self,
        sides: ThreeWaySnapshot,
        changes: list[Change],
        copies: Mapping[str, str],
        wish: SyncOptions,
        noting: CommitBase,
    ) -> Sent:
        from hai_sync.remote.uploader import JOBS, Order, push

        files, size = sizes(changes)
        self.listener.sends(changes)
        self.listener.stage("upload", files, size)
        us = client_id(
            self.index.name()
        )  # the server lets it take over its own lease after a crash
        try:
            async with self.remote.lease(wish.purpose, wish.break_lease, us) as token:
                order = Order(
                    self.place.root,
                    changes,
                    sides.revision,
                    token,
                    author(wish.purpose),
                    copies,
                    self._compress,
                    allow_many_removals=True,  # `guard` has applied the same rule
                    jobs=wish.jobs or JOBS,
                    seen=sides.scan.signatures,
                )
                return await push(self.remote, order, self.listener.progress, noting.begin)
        except Unreachable:
            self._broken = self._broken or 1
            raise

    @property
    def _compress(self) -> bool:
        """On one machine compression only costs."""
        profile = self.remote.connection.profile
        return not on_loopback(profile.server)
