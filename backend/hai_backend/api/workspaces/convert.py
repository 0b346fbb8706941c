"""Converts workspaces to messages and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hai.v1 import workspace_pb2 as pb
from hai.v1 import workspace_service_pb2 as calls
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.request.paging import split_messages
from hai_backend.domain.workspace import (
    Chunk,
    Entry,
    EntryKind,
    Lease,
    PassedOver,
    Revision,
    TaskTree,
    Workspace,
)
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_backend.workspaces.read import Bundle


def workspace_to_proto(workspace: Workspace) -> pb.Workspace:
    newest = workspace.newest
    return pb.Workspace(
        name=workspace.name,
        user=workspace.user,
        path=workspace.path,
        revision=newest.number,
        files=newest.files,
        size_bytes=newest.size_bytes,
        stored_bytes=workspace.stored_bytes,
        quota_bytes=workspace.quota_bytes,
        create_time=to_timestamp(workspace.created_at),
        update_time=to_timestamp(newest.created_at) if newest.number else None,
        lease=lease_to_proto(workspace.lease) if workspace.lease else None,
        case_insensitive=workspace.case_insensitive,
    )


def lease_to_proto(lease: Lease) -> pb.WorkspaceLease:
    """Convert a lease. The message contains the secret if the lease has one."""
    return pb.WorkspaceLease(
        token=lease.token,
        holder=lease.holder,
        expire_time=to_timestamp(lease.expires_at),
        revision=lease.revision,
    )


def revision_to_proto(revision: Revision, pinned_by: Iterable[int] = ()) -> pb.WorkspaceRevision:
    """Convert a revision, with the tasks that run on it."""
    return pb.WorkspaceRevision(
        number=revision.number,
        create_time=to_timestamp(revision.created_at),
        author=revision.author,
        changed=revision.changed,
        removed=revision.removed,
        files=revision.files,
        size_bytes=revision.size_bytes,
        pinned_by=pinned_by,
        tags=revision.tags,
    )


def task_tree_to_proto(tree: TaskTree, unfinished: bool) -> pb.TaskTree:
    return pb.TaskTree(
        task=tree.task,
        revision=tree.revision,
        size_bytes=tree.size_bytes,
        unfinished=unfinished,
        create_time=to_timestamp(tree.created_at),
    )


def tree_to_proto(revision: int, page: Sequence[Entry]) -> Iterator[calls.GetTreeResponse]:
    """Split a page of entries into responses that clients accept."""
    for entries in split_messages(map(entry_to_proto, page)):
        yield calls.GetTreeResponse(revision=revision, entries=entries)


def passed_over_to_proto(revision: int, passed_over: PassedOver) -> Iterator[calls.GetTreeResponse]:
    """Split what a scan skipped into responses that clients accept. Yield none if nothing was skipped."""
    found = [calls.PassedOver(path=p, reason=reason) for p, reason in passed_over.reasons.items()]
    for batch in split_messages(found) if found else ():
        yield calls.GetTreeResponse(revision=revision, passed_over=batch)
    if passed_over.more:
        yield calls.GetTreeResponse(revision=revision, more_passed_over=passed_over.more)


def entry_to_proto(entry: Entry) -> pb.WorkspaceEntry:
    return pb.WorkspaceEntry(
        path=entry.path,
        kind=pb.EntryKind.ValueType(entry.kind),
        executable=entry.executable,
        size=entry.size,
        mtime_ns=entry.mtime_ns,
        digest=entry.digest,
        target=entry.target,
    )


def entries_from_proto(messages: Iterable[pb.WorkspaceEntry]) -> list[Entry]:
    """Convert changes, and ignore fields that do not belong to the kind. Raises Invalid for an unknown kind."""
    violations, entries = FieldViolations(), []
    for message in messages:
        kind = message.kind
        if kind == pb.ENTRY_KIND_FILE:
            entry = Entry(
                message.path,
                EntryKind.FILE,
                message.executable,
                message.size,
                message.mtime_ns,
                message.digest,
            )
        elif kind == pb.ENTRY_KIND_SYMLINK:
            entry = Entry(message.path, EntryKind.SYMLINK, target=message.target)
        elif kind in (pb.ENTRY_KIND_DIRECTORY, pb.ENTRY_KIND_UNSPECIFIED):
            entry = Entry(message.path, EntryKind(kind))
        else:
            violations.add(
                message.path[:200], f"is of a kind {kind} that this server does not know"
            )
            continue
        entries.append(entry)
    violations.raise_if_any()
    return entries


def chunks_from_proto(recipe: calls.FileRecipe) -> list[Chunk]:
    return [Chunk(chunk.digest, chunk.size) for chunk in recipe.chunks]


def contents_from_proto(contents: calls.PushContents) -> ContentsMessage:
    return ContentsMessage(contents.digests, contents.sizes, contents.data, contents.compressed)


def bundle_to_proto(bundle: Bundle) -> calls.FetchFilesResponse:
    parts = [
        calls.FilePart(index=part.index, offset=part.offset, size=part.size, last=part.last)
        for part in bundle.parts
    ]
    return calls.FetchFilesResponse(parts=parts, data=bundle.data, compressed=bundle.compressed)
