"""Converts entries to messages and back. Entries from a server are validated before they are used."""

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
from hai_sync.core.names import is_private, link_error, path_error, tree_error
from hai_sync.errors import ProtocolViolation

_DIGEST_BYTES = 32


def to_message(path: str, entry: Entry | None) -> WorkspaceEntry:
    """Return the message of an entry. None instead of an entry means a removal."""
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


def merge_entries(tree: dict[str, Entry], messages: Iterable[WorkspaceEntry]) -> None:
    """Apply messages to a tree, except for private paths. Raises ProtocolViolation for an invalid entry."""
    for message in messages:
        if is_private(message.path):
            continue
        if reason := _entry_error(message):
            raise _invalid_tree(f"{message.path!r}: {reason}")
        if message.kind == 0:
            tree.pop(message.path, None)
        else:
            tree[message.path] = _entry(message)


def passed_over_paths(answer: GetTreeResponse) -> dict[str, str]:
    """Return the paths that the remote scan could not sync, with the reason."""
    found = {each.path: f"on the cluster it {each.reason}" for each in answer.passed_over}
    if answer.more_passed_over:
        found[f"{answer.more_passed_over} more"] = "on the cluster, for reasons like these"
    return found


def require_valid_tree(tree: Tree) -> None:
    """Raise ProtocolViolation unless the parent of every path is a directory."""
    if reason := tree_error(tree):
        raise _invalid_tree(reason)


def _entry(message: WorkspaceEntry) -> Entry:
    if message.kind == ENTRY_KIND_DIRECTORY:
        return DIRECTORY
    if message.kind == ENTRY_KIND_SYMLINK:
        return Entry(Kind.SYMLINK, target=message.target)
    return Entry(
        Kind.FILE, message.digest, message.size, message.executable, mtime_ns=message.mtime_ns
    )


def _entry_error(message: WorkspaceEntry) -> str:
    if reason := path_error(message.path):
        return reason
    if message.kind == ENTRY_KIND_FILE and len(message.digest) != _DIGEST_BYTES:
        return "its digest is malformed"
    if message.kind == ENTRY_KIND_FILE and (message.size < 0 or message.mtime_ns < 0):
        return "its size or time is negative"
    if message.kind == ENTRY_KIND_SYMLINK:
        return link_error(message.path, message.target)
    return "" if 0 <= message.kind <= ENTRY_KIND_SYMLINK else f"its kind is {message.kind}"


def _invalid_tree(reason: str) -> ProtocolViolation:
    return ProtocolViolation(
        f"the server sent an invalid tree: {reason}",
        hint="nothing was changed; report this to the operator of the server",
    )
