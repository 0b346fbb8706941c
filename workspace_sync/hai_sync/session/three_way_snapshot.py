"""Both sides of a workspace at one moment, and small questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hai_sync.core.entry import Entry, Kind, Tree, ancestors, below
from hai_sync.core.rules import Outcome
from hai_sync.scan import Scan
from hai_sync.session.options import Report
from hai_sync.transition.results import Result

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
