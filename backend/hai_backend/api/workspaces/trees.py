"""Trees of workspaces as clients read them: what is in a revision or of a task, and its contents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import aclosing
from typing import TypeVar

from hai.v1 import workspace_service_pb2 as pb
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.convert import bundle_to_proto, passed_over_to_proto, tree_to_proto
from hai_backend.domain.errors import Invalid, NotFound, Violation
from hai_backend.domain.workspace import Entry, PassedOver, Revision
from hai_backend.workspaces import checkouts, read
from hai_backend.workspaces.push.staging import PROGRAMS, Author
from hai_backend.workspaces.registry import OpenWorkspace
from hai_backend.workspaces.storage import prefetch, tree_scan

Item = TypeVar("Item")


class Trees:
    """Read in threads, page by page."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._clock = workspaces.clock
        self._rooms = workspaces.rooms

    async def tell(
        self, room: OpenWorkspace, request: pb.GetTreeRequest
    ) -> AsyncGenerator[pb.GetTreeResponse]:
        """A tree, or what differs from an older one; at least one message. Raises NotFound."""
        passed_over = PassedOver()
        revision = await self._meant(room, request, passed_over)
        if request.since:
            await self._require_kept(room, request.since)
        told = False
        async with aclosing(self._in_threads(room, _pages(room, request, revision))) as pages:
            async for page in pages:
                for answer in tree_to_proto(revision, page):
                    told = True
                    yield answer
        for answer in passed_over_to_proto(revision, passed_over):
            told = True
            yield answer
        if not told:
            yield pb.GetTreeResponse(revision=revision)

    async def _meant(
        self, room: OpenWorkspace, request: pb.GetTreeRequest, passed_over: PassedOver
    ) -> int:
        if request.task:
            return 0
        if request.revision:
            return await self.kept(room, request.revision)
        return (await self.looked(room, passed_over)).number

    async def kept(self, room: OpenWorkspace, number: int) -> int:
        """The number of a revision that is there. Raises NotFound."""
        await self._rooms.work(room.files.path, room.files.revision, number)
        return number

    async def _require_kept(self, room: OpenWorkspace, since: int) -> None:
        """What was removed after a revision is forgotten with it."""
        if await self._rooms.work(room.files.path, room.files.index.revision, since) is None:
            problem = f"revision {since} is not kept any more; ask for the whole tree"
            raise NotFound(problem, reason="REVISION_GONE")

    async def looked(
        self, room: OpenWorkspace, passed_over: PassedOver, paths: Collection[str] | None = None
    ) -> Revision:
        """The newest, after a look at what programs wrote; `paths`: only these can be that."""
        author = Author(PROGRAMS, self._clock.now())
        async with room.changing:
            before = await self._rooms.work(room.files.path, room.files.index.newest)
            newest = await self._rooms.work(
                room.files.path, tree_scan.look, room.files, author, passed_over, paths
            )
        if newest.number != before.number:
            room.publish()
            self._workspaces.collect_now_and_then(room.key)
        return newest

    async def fetch(
        self, room: OpenWorkspace, request: pb.FetchFilesRequest
    ) -> AsyncGenerator[pb.FetchFilesResponse]:
        """Contents of files. Raises NotFound, Invalid or Conflict."""
        if len(request.offsets) not in (0, len(request.paths)):
            problem = "must be as many as paths, or none"
            raise Invalid((Violation("offsets", problem),))
        source: prefetch.Source = checkouts.OfTask(room.files, request.task)
        if not request.task:
            revision = await self.kept(room, max(request.revision, 1))
            source = read.OfRevision(room.files, revision)
        bundles = read.read(
            source, request.paths, request.offsets, compress=request.accept_compressed
        )
        async with aclosing(self._in_threads(room, bundles)) as made:
            async for bundle in made:
                yield bundle_to_proto(bundle)

    async def _in_threads(
        self, room: OpenWorkspace, items: Generator[Item]
    ) -> AsyncGenerator[Item]:
        """One after the other, each made in a thread, which also puts away what they were made with."""
        step: Callable[[], Item | None] = lambda: next(items, None)  # noqa: E731 - a name for mypy
        try:
            while (item := await self._rooms.work(room.files.path, step)) is not None:
                yield item
        finally:
            await self._rooms.work(room.files.path, items.close)


def _pages(
    room: OpenWorkspace, request: pb.GetTreeRequest, revision: int
) -> Generator[list[Entry]]:
    if request.task:
        return checkouts.written(room.files, request.task)
    if request.since:
        return room.files.index.changes(request.since, revision)
    return room.files.index.tree(revision)
