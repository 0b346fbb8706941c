"""Both sides of a workspace at one moment: the local scan and the server's answer, read at the same time.

What was read is kept, so that the next snapshot of a daemon costs only what has changed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hai_sync.core.entry import Entry, Kind, Tree, ancestors, below
from hai_sync.core.reconcile import differing
from hai_sync.core.rules import Mode, Outcome
from hai_sync.index import Index
from hai_sync.remote.endpoint import Remote
from hai_sync.remote.targets import existing_targets
from hai_sync.rescan import rescan
from hai_sync.scan import Filter, Known, Scan, full_tree, ignore_of, scan
from hai_sync.session.options import Report, SyncOptions
from hai_sync.transition.apply import Result
from hai_sync.workspace_dir import WorkspaceDir

if TYPE_CHECKING:
    from hai_sync.remote.uploader import Sent


@dataclass(slots=True)
class ThreeWaySnapshot:
    """Both sides and what they agreed on, at one moment."""

    base: Tree
    local: Tree
    remote: Tree
    revision: int
    scan: Scan
    doubt: set[str]  # where the three differ, or may
    # taken for the same unseen: to be looked into another time
    believed: set[str] = field(default_factory=set)
    # what is never synced, on the server: why
    passed_over: Mapping[str, str] = field(default_factory=dict)
    # what programs on the cluster write while it is read: why it is left alone
    changing_remotely: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SnapshotBoth:
    """At one workspace, again and again."""

    place: WorkspaceDir
    index: Index
    remote: Remote
    sides: ThreeWaySnapshot | None = None  # as the last sync has left them
    moved_on: bool = False  # the server has a newer revision than ours
    overtaken: bool = False  # the server's files are not as its newest revision says
    _read: tuple[Tree, Tree, int] | None = None  # what the index said of the past

    def keep(self, sides: ThreeWaySnapshot | None) -> None:
        """This is what they are like now; None: the index knows better."""
        self.sides, self._read = sides, None

    async def look(self, wish: SyncOptions, hints: set[str] | None) -> ThreeWaySnapshot | Report:
        """Both sides, or that there is nothing to push. `hints`: only these may have changed here; None: unknown."""
        asking, given_up = asyncio.create_task(self._ask(wish, hints)), threading.Event()
        try:
            found, known = await asyncio.to_thread(self._scan, wish, hints, given_up)
        except BaseException:
            given_up.set()  # the program ends no sooner than its threads
            asking.cancel()
            raise
        revision = await asking
        if found.outward:
            targets = {link.target for link in found.outward.values()}
            existing = await existing_targets(self.remote.connection, targets)
            found.settle_links(wish.filter.links, existing)
        if found.before is None and not wish.dry_run and wish.filter == Filter():
            self.index.leave_out(found.left_out)
        if wish.rules.mode is Mode.PUSH and self._nothing_to_push(found, revision, wish):
            return Report(revision=revision, files=count(found), ignored=found.ignored)
        return await self._both(wish, found, known, revision)

    async def _ask(self, wish: SyncOptions, hints: set[str] | None) -> int:
        """The server's newest revision. A workspace that was made anew there shares no past with us.

        Who only tells of some local changes need not ask: the server refuses what it has overtaken.
        """
        asked = wish.look or self.overtaken or self.moved_on
        if self.sides is not None and hints is not None and not asked:
            return self.sides.revision
        self.moved_on = False
        found = await self.remote.get()
        created = found.create_time.ToJsonString()
        before = self.index.fact("created")
        if before != created:
            if before:
                self.index.forget_base()
                self.keep(None)
            self.index.set_facts(created=created)
        if self.index.fact("made") != (made := found.create_time.SerializeToString().hex()):
            self.index.set_facts(made=made)
        return found.revision

    def _nothing_to_push(self, found: Scan, revision: int, wish: SyncOptions) -> bool:
        return (
            found.unchanged
            and not found.problems
            and self.index.fact("clean") == "yes"
            and str(revision) == self.index.fact("revision")
            and not (wish.rules.mirror or wish.rules.overwrite)
            and (self.sides is not None or not wish.resident)
        )

    def _scan(
        self, wish: SyncOptions, hints: set[str] | None, given_up: threading.Event
    ) -> tuple[Scan, Known]:
        if self.sides is not None and hints is not None and not wish.verify:
            base = self.sides.base
            again = rescan(self.sides.scan, hints, wish.filter, lambda: base)
            if again is not None:
                return again, Known(again.signatures, lambda: again.tree)
        known = replace(self._known(wish), given_up=given_up.is_set)
        return scan(self.place.root, known, wish.filter), known

    def _known(self, wish: SyncOptions) -> Known:
        entries: dict[str, Entry] = {}

        def remembered() -> Mapping[str, Entry]:
            if not entries:
                entries.update(self.index.entries(self._past()[0]))
            return entries

        return Known(
            self.index.signatures(),
            remembered,
            int(self.index.fact("looked_ns", "0")),
            self.index.fact("filter") == wish.filter.fingerprint(),
            wish.verify,
            base=lambda: self._past()[0],
        )

    async def _both(
        self, wish: SyncOptions, found: Scan, known: Known, revision: int
    ) -> ThreeWaySnapshot:
        local = await asyncio.to_thread(full_tree, found, known)
        base, remote, at = await asyncio.to_thread(self._past)
        looks = self.overtaken or (wish.look and wish.rules.mode is not Mode.PUSH)
        if revision != at or looks:
            since = at if at <= revision else 0
            revision, remote = await self.remote.tree(remote, since, 0 if looks else revision)
            self.overtaken = False
        doubt = await asyncio.to_thread(self._doubt, base, local, remote, found)
        passed_over = self._passed_over(wish, found)
        return ThreeWaySnapshot(
            base, local, remote, revision, found, doubt, passed_over=passed_over
        )

    def _passed_over(self, wish: SyncOptions, found: Scan) -> dict[str, str]:
        """Who brings nothing from there need not know, nor of what is left out here."""
        if wish.rules.mode is Mode.PUSH:
            return {}
        hides = ignore_of(wish.filter, found.levels).hides
        told = self.remote.passed_over.items()
        return {p: why for p, why in told if not (hides(p, False) or hides(p, True))}

    def _doubt(self, base: Tree, local: Tree, remote: Tree, found: Scan) -> set[str]:
        """Where nobody has looked and nothing was different before, nothing is different now."""
        before = self.sides
        if before is not None and found.before is before.scan and remote is before.remote:
            return before.doubt | found.fresh.keys() | found.gone
        return differing(base, local, remote)

    def _past(self) -> tuple[Tree, Tree, int]:
        """Base, the other side's tree and its revision, as of the last sync."""
        if self.sides is not None:
            return self.sides.base, self.sides.remote, self.sides.revision
        if self._read is None:
            base = self.index.base()
            revision = int(self.index.fact("revision", "0"))
            self._read = base, self.index.remote(base), revision
        return self._read


def with_sent(local: Tree, remote: Tree, entries: Mapping[str, Entry | None]) -> tuple[Tree, Tree]:
    """Both sides once the server has what was sent; the contents here are known since."""
    ours, theirs = dict(local), dict(remote)
    for path, entry in entries.items():
        if entry is None:
            theirs.pop(path, None)
            ours.pop(path, None)  # it may have vanished when it was about to be sent
            continue
        theirs[path] = entry
        if path in ours:
            ours[path] = entry
    return ours, theirs


def looked_at(scan: Scan, arrived: Result, sent: Sent | None) -> set[str]:
    """Paths whose signature is worth remembering now."""
    found = set(scan.fresh) | arrived.signatures.keys()
    return found | sent.signatures.keys() if sent else found


def report_of(sides: ThreeWaySnapshot, outcome: Outcome) -> Report:
    """What is known before anything is done."""
    return Report(
        outcome,
        revision=sides.revision,
        files=count(sides.scan),
        bytes=sum(entry.size for entry in sides.local.values()),
        ignored=sides.scan.ignored,
        problems=sides.scan.problems | sides.changing_remotely,
        skipped=dict(sides.scan.skipped),
        passed_over=dict(sides.passed_over),
        local=sides.local,
        remote=sides.remote,
    )


def count(found: Scan) -> int:
    """Files and links."""
    return sum(1 for seen in found.signatures.values() if seen != b"d")


def is_directory(remote: Tree, base: Tree, path: str) -> bool:
    """What a path is that is not here."""
    entry = remote.get(path) or base.get(path)
    return entry is not None and entry.kind is Kind.DIRECTORY


def only(tree: Tree, tops: Sequence[str]) -> Tree:
    """What lies at or below some paths, with the directories above them."""
    above = {each for top in tops for each in ancestors(top)}
    return {p: e for p, e in tree.items() if p in above or any(below(p, top) for top in tops)}


def believe_sizes(sides: ThreeWaySnapshot, base: Tree, doubtful: Iterable[str]) -> None:
    """--no_checksum: a file of the same size is taken for the same; the risk is the caller's."""
    for path in doubtful:
        entry, other = sides.scan.tree[path], sides.remote.get(path) or base.get(path)
        if other is not None and other.kind is Kind.FILE and other.size == entry.size:
            sides.scan.tree[path] = replace(entry, digest=other.digest)
            sides.believed.add(path)
