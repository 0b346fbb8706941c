"""Handles the streams of pushes, message by message. A restore is a push that the server makes itself."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import ParamSpec, TypeVar

from hai.v1 import workspace_service_pb2 as pb
from hai_backend.api.audit.rows import describe_change
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.convert import (
    chunks_from_proto,
    entries_from_proto,
    revision_to_proto,
)
from hai_backend.api.workspaces.push_reader import PushMessage, group_contents
from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import Conflict, HaiError, Invalid, Violation
from hai_backend.domain.workspace import EntryKind, Pushed, Revision
from hai_backend.workspaces import errors
from hai_backend.workspaces import restore as restoring
from hai_backend.workspaces.push.push import Push
from hai_backend.workspaces.push.receive import ContentsMessage
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.registry import OpenWorkspace

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_DIGESTS = 20_000  # per response
_AUTHOR_CHARS = 200
Responses = AsyncIterator[pb.PushTreeResponse]


class PushHandler:
    """Handles pushes and restores.

    `confirm` raises Deposed if another server leads, because then nothing may be changed. `on_pushed` is called after
    each push.
    """

    def __init__(
        self,
        workspaces: Workspaces,
        confirm: Callable[[], Awaitable[None]],
        on_pushed: Callable[[Pushed], None],
    ) -> None:
        self._workspaces = workspaces
        self._confirm = confirm
        self._on_pushed = on_pushed
        self._numbers = itertools.count(1)

    async def push(self, identity: Identity, requests: AsyncIterator[PushMessage]) -> Responses:
        """Run one push from begin to commit."""
        begin = await _read_begin(requests)
        async with self._workspaces.open(identity, begin.name) as workspace:
            stream = _Stream(self._workspaces, self._confirm, workspace, begin, next(self._numbers))
            started_at = time.monotonic()
            try:
                async for response in stream.responses(requests):
                    yield response
            except HaiError:
                stream.result = "refused"
                raise
            finally:
                self._on_pushed(stream.summary(time.monotonic() - started_at))
                stream.release()
                await self._workspaces.registry.run(workspace.files.path, stream.push.close)

    async def restore(
        self, workspace: OpenWorkspace, number: int, paths: list[str], token: str
    ) -> Revision:
        """Restore paths from a revision."""
        workspaces, now = self._workspaces, self._workspaces.clock.now()
        if token:
            workspaces.leases.renew(workspace.key, token, now)
        elif (lease := workspaces.leases.get(workspace.key, now)) is not None:
            holder = lease.holder or "another client"
            raise Conflict(f"{holder} is writing to this workspace; try again", reason="LEASE_HELD")
        author = Author(f"restored from {number}", now)
        async with workspace.change_lock:
            await self._confirm()
            revision = await workspaces.registry.run(
                workspace.files.path, restoring.restore, workspace.files, number, paths, author
            )
        workspace.notify_change()
        return revision


class _Stream:
    """One push after its first message."""

    def __init__(
        self,
        workspaces: Workspaces,
        confirm: Callable[[], Awaitable[None]],
        workspace: OpenWorkspace,
        begin: pb.BeginPush,
        number: int,
    ) -> None:
        self.push = Push(workspace.files, number)
        self._workspaces = workspaces
        self._confirm = confirm
        self._workspace = workspace
        self._begin = begin
        self._messages = 1
        self._answered = 0
        self._announced_bytes = 0
        self._changed = 0
        self.result = "broken"

    def summary(self, seconds: float) -> Pushed:
        """Summarize the push for metrics."""
        push = self.push
        received, reused = push.received_bytes, push.reused_chunks
        return Pushed(self.result, seconds, received, self._changed, reused)

    def release(self) -> None:
        """Withdraw the announced bytes after the end of the push."""
        self._workspace.announced_bytes -= self._announced_bytes
        self._workspace.stored_bytes = None

    async def responses(self, requests: AsyncIterator[PushMessage]) -> Responses:
        self._renew()
        async with aclosing(group_contents(requests)) as groups:
            async for message in groups:
                if isinstance(message, list):
                    yield await self._contents(message)
                    self._messages += len(message)
                    continue
                match message.WhichOneof("message"):
                    case "changes":
                        responses = await self._changes(message.changes)
                        await self._require_capacity()
                        for response in responses:
                            yield response
                    case "recipe":
                        for response in await self._recipe(message.recipe):
                            yield response
                    case "commit":
                        yield await self._commit(message.commit)
                        return
                    case other:
                        raise protocol_error(f"{other or 'nothing'} is not expected here")
                self._messages += 1
        raise protocol_error(
            "the push ended without a commit; received contents are kept; push again"
        )

    def _renew(self) -> None:
        now = self._workspaces.clock.now()
        self._workspaces.leases.renew(self._workspace.key, self._begin.lease_token, now)

    async def _changes(self, changes: pb.PushChanges) -> list[pb.PushTreeResponse]:
        entries = entries_from_proto(changes.entries)
        missing = set(await self._run(self.push.add_changes, entries))
        sizes = {e.digest: e.size for e in entries if e.kind is EntryKind.FILE}
        announced = sum(sizes[digest] for digest in missing)
        self._announced_bytes += announced
        self._workspace.announced_bytes += announced
        return self._missing([digest for digest in sizes if digest in missing])

    async def _recipe(self, recipe: pb.FileRecipe) -> list[pb.PushTreeResponse]:
        recipe_chunks = chunks_from_proto(recipe)

        def add_chunks() -> list[bytes]:
            return self.push.add_recipe(recipe.digest, recipe_chunks, last=recipe.last)

        return self._missing(await self._run(add_chunks))

    async def _contents(self, contents: list[ContentsMessage]) -> pb.PushTreeResponse:
        self._renew()
        return pb.PushTreeResponse(received_bytes=await self._run(self.push.receive, contents))

    async def _commit(self, commit: pb.CommitPush) -> pb.PushTreeResponse:
        if commit.messages != self._messages:
            raise protocol_error(f"{self._messages} messages arrived, {commit.messages} were sent")
        workspace, begin = self._workspace, self._begin
        author = Author(begin.author[:_AUTHOR_CHARS], self._workspaces.clock.now())

        def commit_push() -> Revision:
            return self.push.commit(
                begin.base_revision, author, allow_many_removals=begin.allow_many_removals
            )

        async with workspace.change_lock:
            self._renew()
            await self._confirm()
            revision = await self._run(commit_push)
        self.result, self._changed = "done", revision.changed + revision.removed
        workspace.notify_change()
        self._workspaces.collect_periodically(workspace.key)
        describe_change(
            f"{workspace.key[1]} revision={revision.number} changed={revision.changed} removed={revision.removed}"
        )
        return pb.PushTreeResponse(revision=revision_to_proto(revision))

    async def _require_capacity(self) -> None:
        """Check quota and disk for the announced bytes. Delete old revisions before a refusal. Raises Exhausted."""
        user, announced = self._workspace.key[0], self._announced_bytes
        if not announced:
            return
        if await self._workspaces.available_bytes(user) < 0:
            await self._workspaces.collect(self._workspace, full=True)
            available = await self._workspaces.available_bytes(user)
            if available < 0:
                raise self._workspaces.quota_exceeded(user, announced, available + announced)
        if not await self._fits_on_disk():
            await self._workspaces.collect(self._workspace, full=True)
            if not await self._fits_on_disk():
                raise errors.disk_full_error()

    async def _fits_on_disk(self) -> bool:
        """Say whether the disk has space for the announced bytes that have not arrived yet."""
        free = await self._run(self._workspace.files.reserve.free)
        return self._announced_bytes - self.push.received_bytes <= free

    def _missing(self, digests: Sequence[bytes]) -> list[pb.PushTreeResponse]:
        self._answered += 1
        parts = [digests[i : i + _DIGESTS] for i in range(0, len(digests), _DIGESTS)] or [[]]
        last = len(parts) - 1
        return [
            pb.PushTreeResponse(
                missing=pb.MissingContents(
                    digests=part, answered=self._answered if i == last else self._answered - 1
                )
            )
            for i, part in enumerate(parts)
        ]

    async def _run(
        self,
        function: Callable[Parameters, Result],
        *args: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        return await self._workspaces.registry.run(
            self._workspace.files.path, function, *args, **keywords
        )


async def _read_begin(requests: AsyncIterator[PushMessage]) -> pb.BeginPush:
    async for request in requests:
        if isinstance(request, pb.PushTreeRequest) and request.HasField("begin"):
            return request.begin
        break
    raise protocol_error("the first message must be begin")


def protocol_error(problem: str) -> Invalid:
    return Invalid((Violation("message", problem),), reason="BAD_PUSH")
