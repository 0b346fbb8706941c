"""After a sync: what both sides have now becomes the base of the next one."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hai_sync.core.entry import Tree
from hai_sync.core.reconcile import rebase
from hai_sync.index import Index
from hai_sync.kept import Kept
from hai_sync.place import Place
from hai_sync.session.sides import Sides, looked_at
from hai_sync.session.wish import Report, Wish
from hai_sync.transition.results import Result

if TYPE_CHECKING:
    from hai_sync.remote.sending import Sent


@dataclass(frozen=True, slots=True)
class Done:
    """What a sync saw, what both sides have since, and what was brought either way."""

    sides: Sides
    local: Tree
    remote: Tree
    arrived: Result
    sent: Sent | None
    report: Report


class Note:
    """What a sync comes to, written down while the server may still refuse it: `keep` it, or `drop` it."""

    def __init__(self, index: Index, done: Done) -> None:
        self._index = index
        self._done = done
        self._scan = scan = done.sides.scan
        scan.signatures |= done.arrived.signatures | (done.sent.signatures if done.sent else {})
        index.begin()
        try:
            self._base, self._doubt = self._write(done.local)
        except BaseException:
            index.rollback()
            raise

    def _write(self, local: Tree) -> tuple[Tree, set[str]]:
        """Answers what both sides agree on, and where they do not."""
        index, done, scan = self._index, self._done, self._scan
        touched = _touched(done) | index.theirs()
        base = rebase(done.sides.base, local, done.remote, touched)
        fresh = {p: local[p] for p in looked_at(scan, done.arrived, done.sent) if p in local}
        gone = scan.gone | {c.path for c in done.arrived.done if c.new is None}
        index.remember(fresh, scan.signatures, gone - fresh.keys())
        index.agree(touched, base, done.remote)
        doubt = {p for p in touched if not (base.get(p) == local.get(p) == done.remote.get(p))}
        return base, doubt

    def keep(self, place: Place, wish: Wish) -> tuple[Sides, str]:
        """It is true. Answers both sides as the next sync of this session finds them, and the mark of this one."""
        done, scan, base, doubt = self._done, self._scan, self._base, self._doubt
        local, revision = done.local, done.report.revision
        facts = {
            "revision": str(revision),
            "looked_ns": str(scan.looked_ns),
            "filter": wish.filter.fingerprint(),
            "clean": "no" if any(base.get(p) != local.get(p) for p in doubt) else "yes",
            "synced": str(time.time()),
            "generation": os.urandom(16).hex(),
        }
        self._index.put_facts(facts)
        self._index.commit()
        Kept(place.state / "kept").prune(time.time())
        scan.tree, scan.fresh, scan.gone, scan.before = dict(local), {}, set(), None
        return Sides(base, local, done.remote, revision, scan, doubt), facts["generation"]

    def drop(self) -> None:
        """It never was."""
        self._index.rollback()


class Beside:
    """A note that is written in a thread, from when all is sent. Who is cancelled meanwhile must `drop` it."""

    def __init__(self, note: Callable[[Sent], Note]) -> None:
        self._note = note
        self._writing: asyncio.Task[Note] | None = None

    def begin(self, sent: Sent) -> None:
        self._writing = asyncio.create_task(asyncio.to_thread(self._note, sent))

    async def done(self) -> Note:
        assert self._writing is not None
        return await asyncio.shield(self._writing)

    async def drop(self) -> None:
        """Nothing came of it; returns when nobody writes any more."""
        if self._writing is not None:
            with suppress(Exception):  # what is told is why it is dropped
                (await asyncio.shield(self._writing)).drop()


def _touched(done: Done) -> set[str]:
    outcome = done.report.outcome
    changed = {change.path for change in (*outcome.to_local, *outcome.to_remote)}
    return done.sides.doubt | changed | (done.sent.entries.keys() if done.sent else set())
