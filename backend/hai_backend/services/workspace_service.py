"""WorkspaceService: trees of files that clients push, pull and watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TypeVar

from hai.v1 import workspace_pb2
from hai.v1 import workspace_service_pb2 as pb
from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceServicer
from hai_backend.domain.errors import Invalid, NotFound, Violation
from hai_backend.domain.workspace import Entry, PassedOver, Revision
from hai_backend.services import caller, limits, paging
from hai_backend.services.convert_user import NAME_RULE
from hai_backend.services.convert_workspace import (
    bundle_to_proto,
    lease_to_proto,
    passed_over_to_proto,
    revision_to_proto,
    tree_to_proto,
    workspace_to_proto,
)
from hai_backend.services.rules import NAME, Rules
from hai_backend.services.workspace_pushing import Pushing
from hai_backend.services.workspace_reading import Said
from hai_backend.services.workspace_tagging import Tagging
from hai_backend.services.workspace_task_trees import TaskTrees
from hai_backend.services.workspaces import Workspaces
from hai_backend.services.wrapping import Context
from hai_backend.workspaces import checkouts, looking, reading
from hai_backend.workspaces.rooms import Room
from hai_backend.workspaces.staging import Author

Item = TypeVar("Item")

_AFTER_ALL = 1 << 62  # a number above those of all revisions
TASKS = "tasks"  # author of what programs wrote


class WorkspaceService(WorkspaceServiceServicer):
    """See proto/hai/v1/workspace_service.proto for what each call means."""

    def __init__(
        self, workspaces: Workspaces, pushing: Pushing, tagging: Tagging, task_trees: TaskTrees
    ) -> None:
        self._workspaces = workspaces
        self._rooms = workspaces.rooms
        self._pushing = pushing
        self._tagging = tagging
        self._task_trees = task_trees

    async def ListWorkspaces(
        self, request: pb.ListWorkspacesRequest, context: Context
    ) -> pb.ListWorkspacesResponse:
        found = await self._workspaces.visible(caller.current(), request.user)
        return pb.ListWorkspacesResponse(workspaces=map(workspace_to_proto, found))

    async def GetWorkspace(
        self, request: pb.GetWorkspaceRequest, context: Context
    ) -> workspace_pb2.Workspace:
        async with self._workspaces.open(caller.current(), request.name, request.user) as room:
            return workspace_to_proto(await self._workspaces.described(room))

    async def CreateWorkspace(
        self, request: pb.CreateWorkspaceRequest, context: Context
    ) -> workspace_pb2.Workspace:
        name, rules = request.workspace.name, Rules()
        rules.matching("workspace.name", name, NAME, NAME_RULE)
        rules.line("request_id", request.request_id, 64)
        rules.check()
        identity = caller.current()
        key = (identity.name, name)
        await self._rooms.create(key, self._workspaces.clock.now(), request.request_id)
        async with self._rooms.open(key) as room:
            return workspace_to_proto(await self._workspaces.described(room))

    async def DeleteWorkspace(
        self, request: pb.DeleteWorkspaceRequest, context: Context
    ) -> pb.DeleteWorkspaceResponse:
        await self._workspaces.delete(caller.current(), request.name, request.user)
        return pb.DeleteWorkspaceResponse()

    async def LeaseWorkspace(
        self, request: pb.LeaseWorkspaceRequest, context: Context
    ) -> workspace_pb2.WorkspaceLease:
        leases, now = self._workspaces.leases, self._workspaces.clock.now()
        rules = Rules()
        rules.line("client_id", request.client_id, 128)
        rules.check()
        async with self._workspaces.open(caller.current(), request.name) as room:
            if request.release:
                leases.release(room.key, request.token)
                return workspace_pb2.WorkspaceLease()
            if request.token:
                return lease_to_proto(leases.renew(room.key, request.token, now))
            newest = await self._rooms.work(room.files.path, room.files.index.newest)
            lease = leases.take(
                room.key,
                request.holder,
                newest.number,
                now,
                force=request.force,
                client_id=request.client_id,
            )
            return lease_to_proto(lease)

    async def GetTree(
        self, request: pb.GetTreeRequest, context: Context
    ) -> AsyncIterator[pb.GetTreeResponse]:
        async with self._workspaces.open(caller.current(), request.name, request.user) as room:
            passed_over = PassedOver()
            revision = await self._meant(room, request, passed_over)
            if request.since:
                await self._require_kept(room, request.since)
            told = False
            async for page in self._in_threads(room, _pages(room, request, revision)):
                for answer in tree_to_proto(revision, page):
                    told = True
                    yield answer
            for answer in passed_over_to_proto(revision, passed_over):
                told = True
                yield answer
            if not told:
                yield pb.GetTreeResponse(revision=revision)

    async def _meant(self, room: Room, request: pb.GetTreeRequest, passed_over: PassedOver) -> int:
        if request.task:
            return 0
        if request.revision:
            return await self._revision(room, request.revision)
        return (await self._looked(room, passed_over)).number

    async def _revision(self, room: Room, number: int) -> int:
        await self._rooms.work(room.files.path, room.files.revision, number)
        return number

    async def _require_kept(self, room: Room, since: int) -> None:
        """What was removed after a revision is forgotten with it."""
        if await self._rooms.work(room.files.path, room.files.index.revision, since) is None:
            problem = f"revision {since} is not kept any more; ask for the whole tree"
            raise NotFound(problem, reason="REVISION_GONE")

    async def _looked(self, room: Room, passed_over: PassedOver) -> Revision:
        author = Author(TASKS, self._workspaces.clock.now())
        async with room.changing:
            before = await self._rooms.work(room.files.path, room.files.index.newest)
            newest = await self._rooms.work(
                room.files.path, looking.look, room.files, author, passed_over
            )
        if newest.number != before.number:
            room.publish()
        return newest

    async def PushTree(
        self, request_iterator: AsyncIterator[Said], context: Context
    ) -> AsyncIterator[pb.PushTreeResponse]:
        async for answer in self._pushing.push(caller.current(), request_iterator):
            yield answer

    async def FetchFiles(
        self, request: pb.FetchFilesRequest, context: Context
    ) -> AsyncIterator[pb.FetchFilesResponse]:
        if len(request.offsets) not in (0, len(request.paths)):
            problem = "must be as many as paths, or none"
            raise Invalid((Violation("offsets", problem),))
        async with self._workspaces.open(caller.current(), request.name, request.user) as room:
            async for bundle in self._in_threads(room, await self._bundles(room, request)):
                yield bundle_to_proto(bundle)

    async def _bundles(self, room: Room, request: pb.FetchFilesRequest) -> Iterator[reading.Bundle]:
        what, compress = (request.paths, request.offsets), request.accept_compressed
        if request.task:
            opener = partial(checkouts.opened_file, room.files, request.task)
            return reading.read(opener, *what, compress=compress)
        revision = await self._revision(room, max(request.revision, 1))
        return reading.read_revision(room.files, revision, *what, compress=compress)

    async def ListRevisions(
        self, request: pb.ListRevisionsRequest, context: Context
    ) -> pb.ListRevisionsResponse:
        size = paging.size(request.page_size, limits.DEFAULT_PAGE_SIZE)
        before = paging.number(request.page_token) or _AFTER_ALL
        async with self._workspaces.open(caller.current(), request.name, request.user) as room:
            index, pins = room.files.index, self._workspaces.pins(room.key)
            found = await self._rooms.work(
                room.files.path,
                index.revisions,
                before=before,
                limit=size + 1,
                tagged=request.tagged,
            )
        keyed = ((str(r.number), revision_to_proto(r, pins.get(r.number, ()))) for r in found)
        revisions, token = paging.page(keyed, size)
        return pb.ListRevisionsResponse(revisions=revisions, next_page_token=token)

    async def RestoreRevision(
        self, request: pb.RestoreRevisionRequest, context: Context
    ) -> workspace_pb2.WorkspaceRevision:
        async with self._workspaces.open(caller.current(), request.name) as room:
            await self._revision(room, max(request.revision, 1))
            return revision_to_proto(
                await self._pushing.restore(
                    room, request.revision, list(request.paths), request.lease_token
                )
            )

    async def TagRevision(
        self, request: pb.TagRevisionRequest, context: Context
    ) -> workspace_pb2.WorkspaceRevision:
        async with self._workspaces.open(caller.current(), request.name) as room:
            number = request.revision or (await self._looked(room, PassedOver())).number
            return revision_to_proto(
                await self._tagging.tag(room, number, request.tag, force=request.force)
            )

    async def UntagRevision(
        self, request: pb.UntagRevisionRequest, context: Context
    ) -> pb.UntagRevisionResponse:
        async with self._workspaces.open(caller.current(), request.name) as room:
            await self._tagging.untag(room, request.tag)
        return pb.UntagRevisionResponse()

    async def ListTaskTrees(
        self, request: pb.ListTaskTreesRequest, context: Context
    ) -> pb.ListTaskTreesResponse:
        async with self._workspaces.open(caller.current(), request.name, request.user) as room:
            return await self._task_trees.page(room, request.page_size, request.page_token)

    async def DeleteTaskTree(
        self, request: pb.DeleteTaskTreeRequest, context: Context
    ) -> pb.DeleteTaskTreeResponse:
        async with self._workspaces.open(caller.current(), request.name) as room:
            await self._task_trees.delete(room, request.task)
        return pb.DeleteTaskTreeResponse()

    async def WatchWorkspace(
        self, request: pb.WatchWorkspaceRequest, context: Context
    ) -> AsyncIterator[pb.WatchWorkspaceResponse]:
        async with self._workspaces.open(caller.current(), request.name, request.user) as room:
            told = -1
            while True:
                waiting = asyncio.ensure_future(room.wait())
                try:
                    newest = await self._rooms.work(room.files.path, room.files.index.newest)
                    if newest.number != told:
                        told = newest.number
                        shown = revision_to_proto(newest) if told else None
                        yield pb.WatchWorkspaceResponse(revision=shown)
                    await waiting
                finally:
                    waiting.cancel()
                if room.gone:
                    raise NotFound(f"workspace {room.key[1]} was removed")

    async def _in_threads(self, room: Room, items: Iterator[Item]) -> AsyncIterator[Item]:
        """One after the other, each made in a thread."""
        step: Callable[[], Item | None] = lambda: next(items, None)  # noqa: E731 - a name for mypy
        while (item := await self._rooms.work(room.files.path, step)) is not None:
            yield item


def _pages(room: Room, request: pb.GetTreeRequest, revision: int) -> Iterator[list[Entry]]:
    if request.task:
        return checkouts.written(room.files, request.task)
    if request.since:
        return room.files.index.changes(request.since, revision)
    return room.files.index.tree(revision)
