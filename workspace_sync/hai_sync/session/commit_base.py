"""After a sync: what both sides have now becomes the base of the next one."""

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
from hai_sync.session.snapshot import ThreeWaySnapshot, looked_at
from hai_sync.transition.apply import Result
from hai_sync.version_store import VersionStore
from hai_sync.workspace_dir import WorkspaceDir

if TYPE_CHECKING:
    from hai_sync.remote.uploader import Sent


@dataclass(frozen=True, slots=True)
class Done:
    """What a sync saw, what both sides have since, and what was brought either way."""

    sides: ThreeWaySnapshot
    local: Tree
    remote: Tree
    arrived: Result
    sent: Sent | None
    report: Report


@dataclass(frozen=True, slots=True)
class Note:
    """What a sync comes to, in a transaction of the index that is still open: the server may yet refuse it."""

    done: Done
    base: Tree  # what both sides agree on
    doubt: set[str]  # where they do not


def note(index: Index, done: Done) -> Note:
    """Write it down. Whoever called makes it true (`keep`) or rolls it back."""
    scan, local = done.sides.scan, done.local
    scan.signatures |= done.arrived.signatures | (done.sent.signatures if done.sent else {})
    index.begin()
    believed = done.sides.believed
    touched = _touched(done) | index.theirs() | believed
    base = rebase(done.sides.base, local, done.remote, touched - believed)
    looked = looked_at(scan, done.arrived, done.sent) - believed
    fresh = {p: local[p] for p in looked if p in local}
    gone = scan.gone | {c.path for c in done.arrived.done if c.new is None}
    index.remember(fresh, scan.signatures, gone - fresh.keys())
    index.agree(touched, base, done.remote)
    doubt = {p for p in touched if not (base.get(p) == local.get(p) == done.remote.get(p))}
    return Note(done, base, doubt | believed)


def keep(
    index: Index, noted: Note, place: WorkspaceDir, wish: SyncOptions
) -> tuple[ThreeWaySnapshot, str]:
    """It is true. Answers both sides as the next sync of this session finds them, and the mark of this one."""
    done, base, doubt = noted.done, noted.base, noted.doubt
    scan, local, revision = done.sides.scan, done.local, done.report.revision
    clean = not done.sides.believed and all(base.get(p) == local.get(p) for p in doubt)
    facts = {
        "revision": str(revision),
        "looked_ns": str(scan.looked_ns),
        "filter": wish.filter.fingerprint(),
        "clean": "yes" if clean else "no",
        "synced": str(time.time()),
        "generation": os.urandom(16).hex(),
    }
    if done.sent is not None:
        facts["unfinished"] = "no"
    index.put_facts(facts)
    index.commit()
    VersionStore(place.state / "kept").prune(time.time())
    scan.tree, scan.fresh, scan.gone, scan.before = dict(local), {}, set(), None
    return ThreeWaySnapshot(base, local, done.remote, revision, scan, doubt), facts["generation"]


class CommitBase:
    """A note that is written in a thread while the server commits. Left by an error, nothing of it was ever true."""

    def __init__(self, index: Index, make: Callable[[Sent | None], Done]) -> None:
        self._index = index
        self._make = make
        self._writing: asyncio.Task[Note] | None = None

    def begin(self, sent: Sent | None) -> None:
        """Only the server's last word is missing."""
        work = asyncio.to_thread(lambda: note(self._index, self._make(sent)))
        self._writing = asyncio.create_task(work)

    async def keep(self, place: WorkspaceDir, wish: SyncOptions) -> tuple[ThreeWaySnapshot, str]:
        """See `keep`."""
        assert self._writing is not None
        noted = await asyncio.shield(self._writing)
        return await asyncio.to_thread(keep, self._index, noted, place, wish)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None and self._writing is not None:
            with suppress(Exception):  # what is told is why it is dropped
                await asyncio.shield(self._writing)
            self._index.rollback()


def _touched(done: Done) -> set[str]:
    outcome = done.report.outcome
    changed = {change.path for change in (*outcome.to_local, *outcome.to_remote)}
    return done.sides.doubt | changed | (done.sent.entries.keys() if done.sent else set())
