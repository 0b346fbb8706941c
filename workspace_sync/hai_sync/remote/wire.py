"""Entries as messages, and back. What comes from a server is looked at before anybody acts upon it."""

from __future__ import annotations

from collections.abc import Iterable

from hai.v1.workspace_pb2 import (
    ENTRY_KIND_DIRECTORY,
    ENTRY_KIND_FILE,
    ENTRY_KIND_SYMLINK,
    WorkspaceEntry,
)
from hai.v1.workspace_service_pb2 import GetTreeResponse
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree
from hai_sync.core.names import fault, is_own, link_fault, tree_fault
from hai_sync.errors import BadPeer

_DIGEST_BYTES = 32


def to_message(path: str, entry: Entry | None) -> WorkspaceEntry:
    """None: it is removed."""
    if entry is None:
        return WorkspaceEntry(path=path)
    if entry.kind is Kind.FILE:
        return WorkspaceEntry(
            path=path,
            kind=ENTRY_KIND_FILE,
            executable=entry.executable,
            size=entry.size,
            mtime_ns=entry.mtime_ns,
            digest=entry.digest,
        )
    kind = ENTRY_KIND_SYMLINK if entry.kind is Kind.SYMLINK else ENTRY_KIND_DIRECTORY
    return WorkspaceEntry(path=path, kind=kind, target=entry.target)


def merge(tree: dict[str, Entry], messages: Iterable[WorkspaceEntry]) -> None:
    """Put what a server says into a tree, but for what is private to each side. Raises BadPeer for what cannot be."""
    for message in messages:
        if is_own(message.path):
            continue
        if why := _fault(message):
            raise _bad(f"{message.path!r}: {why}")
        if message.kind == 0:
            tree.pop(message.path, None)
        else:
            tree[message.path] = _entry(message)


def told_of(answer: GetTreeResponse) -> dict[str, str]:
    """What a look has passed over, and why."""
    found = {each.path: f"on the cluster it {each.reason}" for each in answer.passed_over}
    if answer.more_passed_over:
        found[f"{answer.more_passed_over} more"] = "on the cluster, for reasons like these"
    return found


def require_tree(tree: Tree) -> None:
    """Raises BadPeer unless every path lies in directories."""
    if why := tree_fault(tree):
        raise _bad(why)


def _entry(message: WorkspaceEntry) -> Entry:
    if message.kind == ENTRY_KIND_DIRECTORY:
        return DIRECTORY
    if message.kind == ENTRY_KIND_SYMLINK:
        return Entry(Kind.SYMLINK, target=message.target)
    return Entry(
        Kind.FILE, message.digest, message.size, message.executable, mtime_ns=message.mtime_ns
    )


def _fault(message: WorkspaceEntry) -> str:
    if why := fault(message.path):
        return why
    if message.kind == ENTRY_KIND_FILE and len(message.digest) != _DIGEST_BYTES:
        return "its digest is none"
    if message.kind == ENTRY_KIND_FILE and (message.size < 0 or message.mtime_ns < 0):
        return "its size or time is negative"
    if message.kind == ENTRY_KIND_SYMLINK:
        return link_fault(message.path, message.target)
    return "" if 0 <= message.kind <= ENTRY_KIND_SYMLINK else f"its kind is {message.kind}"


def _bad(what: str) -> BadPeer:
    return BadPeer(
        f"the server sent a tree that cannot be: {what}",
        hint="nothing was changed; tell whoever runs the server",
    )
