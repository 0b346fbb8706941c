"""What a push says, message by message, and what it is answered; and restoring, which is a push of our own."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import ParamSpec, TypeVar

from hai.v1 import workspace_service_pb2 as pb
from hai_backend.api.server import audit
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.convert import (
    chunks_from_proto,
    entries_from_proto,
    revision_to_proto,
)
from hai_backend.api.workspaces.push_reader import Said, grouped
from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import Conflict, HaiError, Invalid, Violation
from hai_backend.domain.workspace import EntryKind, Pushed, Revision
from hai_backend.workspaces import errors
from hai_backend.workspaces import restore as restoring
from hai_backend.workspaces.push.push import Push
from hai_backend.workspaces.push.receive import Piece
from hai_backend.workspaces.push.staging import Author
from hai_backend.workspaces.registry import OpenWorkspace

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
_DIGESTS = 20_000  # in one answer
_AUTHOR_CHARS = 200
Answers = AsyncIterator[pb.PushTreeResponse]


class Pushing:
    """`confirm` raises Deposed when another server leads by now: nothing may be changed any more.

    `pushed` is told of each push that has ended.
    """

    def __init__(
        self,
        workspaces: Workspaces,
        confirm: Callable[[], Awaitable[None]],
        pushed: Callable[[Pushed], None],
    ) -> None:
        self._workspaces = workspaces
        self._confirm = confirm
        self._pushed = pushed
        self._numbers = itertools.count(1)

    async def push(self, identity: Identity, requests: AsyncIterator[Said]) -> Answers:
        """One push from begin to commit."""
        begin = await _begun(requests)
        async with self._workspaces.open(identity, begin.name) as room:
            stream = _Stream(self._workspaces, self._confirm, room, begin, next(self._numbers))
            began = time.monotonic()
            try:
                async for answer in stream.answers(requests):
                    yield answer
            except HaiError:
                stream.result = "refused"
                raise
            finally:
                self._pushed(stream.ended(time.monotonic() - began))
                stream.leave()
                await self._workspaces.rooms.work(room.files.path, stream.push.close)

    async def restore(
        self, room: OpenWorkspace, number: int, paths: list[str], token: str
    ) -> Revision:
        """Make paths as they were in a revision."""
        workspaces, now = self._workspaces, self._workspaces.clock.now()
        if token:
            workspaces.leases.renew(room.key, token, now)
        elif (held := workspaces.leases.of(room.key, now)) is not None:
            who = held.holder or "another client"
            raise Conflict(f"{who} writes this workspace; try again", reason="LEASE_HELD")
        author = Author(f"restored from {number}", now)
        async with room.changing:
            await self._confirm()
            revision = await workspaces.rooms.work(
                room.files.path, restoring.restore, room.files, number, paths, author
            )
        room.publish()
        return revision


class _Stream:
    """One push, after its first message."""

    def __init__(
        self,
        workspaces: Workspaces,
        confirm: Callable[[], Awaitable[None]],
        room: OpenWorkspace,
        begin: pb.BeginPush,
        number: int,
    ) -> None:
        self.push = Push(room.files, number)
        self._workspaces = workspaces
        self._confirm = confirm
        self._room = room
        self._begin = begin
        self._messages = 1
        self._answered = 0
        self._wanted_bytes = 0
        self._changed = 0
        self.result = "broken"

    def ended(self, seconds: float) -> Pushed:
        """What it was like."""
        push = self.push
        received, reused = push.received_bytes, push.reused_chunks
        return Pushed(self.result, seconds, received, self._changed, reused)

    def leave(self) -> None:
        """What was to come has, or will not."""
        self._room.coming -= self._wanted_bytes
        self._room.stored = None

    async def answers(self, requests: AsyncIterator[Said]) -> Answers:
        self._renew()
        async with aclosing(grouped(requests)) as groups:
            async for said in groups:
                if isinstance(said, list):
                    yield await self._contents(said)
                    self._messages += len(said)
                    continue
                match said.WhichOneof("message"):
                    case "changes":
                        answers = await self._changes(said.changes)
                        await self._require_space()
                        for answer in answers:
                            yield answer
                    case "recipe":
                        for answer in await self._recipe(said.recipe):
                            yield answer
                    case "commit":
                        yield await self._commit(said.commit)
                        return
                    case other:
                        raise bad_order(f"{other or 'nothing'} is not expected here")
                self._messages += 1
        raise bad_order("the push ended without a commit; what arrived is kept, push again")

    def _renew(self) -> None:
        now = self._workspaces.clock.now()
        self._workspaces.leases.renew(self._room.key, self._begin.lease_token, now)

    async def _changes(self, changes: pb.PushChanges) -> list[pb.PushTreeResponse]:
        entries = entries_from_proto(changes.entries)
        missing = set(await self._work(self.push.want, entries))
        sizes = {e.digest: e.size for e in entries if e.kind is EntryKind.FILE}
        wanted = sum(sizes[digest] for digest in missing)
        self._wanted_bytes += wanted
        self._room.coming += wanted
        return self._missing([digest for digest in sizes if digest in missing])

    async def _recipe(self, recipe: pb.FileRecipe) -> list[pb.PushTreeResponse]:
        told = chunks_from_proto(recipe)

        def note() -> list[bytes]:
            return self.push.recipe(recipe.digest, told, last=recipe.last)

        return self._missing(await self._work(note))

    async def _contents(self, pieces: list[Piece]) -> pb.PushTreeResponse:
        self._renew()
        return pb.PushTreeResponse(received_bytes=await self._work(self.push.receive, pieces))

    async def _commit(self, commit: pb.CommitPush) -> pb.PushTreeResponse:
        if commit.messages != self._messages:
            raise bad_order(f"{self._messages} messages arrived, {commit.messages} were sent")
        room, begin = self._room, self._begin
        author = Author(begin.author[:_AUTHOR_CHARS], self._workspaces.clock.now())

        def make() -> Revision:
            return self.push.commit(
                begin.base_revision, author, allow_many_removals=begin.allow_many_removals
            )

        async with room.changing:
            self._renew()
            await self._confirm()
            revision = await self._work(make)
        self.result, self._changed = "done", revision.changed + revision.removed
        room.publish()
        self._workspaces.collect_now_and_then(room.key)
        audit.tell(
            f"{room.key[1]} revision={revision.number} changed={revision.changed} removed={revision.removed}"
        )
        return pb.PushTreeResponse(revision=revision_to_proto(revision))

    async def _require_space(self) -> None:
        """For what is to come; older versions make way before anything is refused. Raises Exhausted."""
        user, wanted = self._room.key[0], self._wanted_bytes
        if not wanted:
            return
        if await self._workspaces.room_left(user) < 0:
            await self._workspaces.collect(self._room, full=True)
            left = await self._workspaces.room_left(user)
            if left < 0:
                raise self._workspaces.over_quota(user, wanted, left + wanted)
        if not await self._fits():
            await self._workspaces.collect(self._room, full=True)
            if not await self._fits():
                raise errors.full()

    async def _fits(self) -> bool:
        """Whether the disk has room for what is to come, of which some may have arrived."""
        free = await self._work(self._room.files.reserve.free)
        return self._wanted_bytes - self.push.received_bytes <= free

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

    async def _work(
        self, do: Callable[Given, Answer], *args: Given.args, **more: Given.kwargs
    ) -> Answer:
        return await self._workspaces.rooms.work(self._room.files.path, do, *args, **more)


async def _begun(requests: AsyncIterator[Said]) -> pb.BeginPush:
    async for request in requests:
        if isinstance(request, pb.PushTreeRequest) and request.HasField("begin"):
            return request.begin
        break
    raise bad_order("the first message must be begin")


def bad_order(problem: str) -> Invalid:
    """Messages that do not make a push."""
    return Invalid((Violation("message", problem),), reason="BAD_PUSH")
