"""After a sync: what both sides have now becomes the base of the next one."""

from __future__ import annotations

import os
import time
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


def remember(place: Place, index: Index, done: Done, wish: Wish) -> tuple[Sides, str]:
    """Write it down. Answers both sides as the next sync of this session finds them, and the mark of this one."""
    sides, arrived, sent = done.sides, done.arrived, done.sent
    scan, local = sides.scan, done.local
    scan.signatures |= arrived.signatures | (sent.signatures if sent else {})
    revision = done.report.revision = done.report.revision or sides.revision
    touched = _touched(done) | index.theirs()
    base = rebase(sides.base, local, done.remote, touched)
    doubt = {p for p in touched if not (base.get(p) == local.get(p) == done.remote.get(p))}
    fresh = {p: local[p] for p in looked_at(scan, arrived, sent) if p in local}
    gone = scan.gone | {c.path for c in arrived.done if c.new is None}
    index.remember(fresh, scan.signatures, gone - fresh.keys())
    facts = {
        "revision": str(revision),
        "looked_ns": str(scan.looked_ns),
        "filter": wish.filter.fingerprint(),
        "clean": "no" if any(base.get(p) != local.get(p) for p in doubt) else "yes",
        "synced": str(time.time()),
        "generation": os.urandom(16).hex(),
    }
    index.agree(touched, base, done.remote, facts)
    Kept(place.state / "kept").prune(time.time())
    scan.tree, scan.fresh, scan.gone, scan.before = dict(local), {}, set(), None
    return Sides(base, local, done.remote, revision, scan, doubt), facts["generation"]


def _touched(done: Done) -> set[str]:
    outcome = done.report.outcome
    changed = {change.path for change in (*outcome.to_local, *outcome.to_remote)}
    return done.sides.doubt | changed | (done.sent.entries.keys() if done.sent else set())
