"""One workspace on a server: its tree, its lease, its revisions."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.backoff import delays
from hai.client.connection.transport import Connection
from hai.client.errors import HaiError, NotFound, Unreachable
from hai.v1 import workspace_service_pb2 as wire_pb
from hai.v1.workspace_pb2 import TaskTree, Workspace, WorkspaceLease, WorkspaceRevision
from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceStub
from hai_sync.core.entry import Entry, Tree
from hai_sync.errors import BadPeer
from hai_sync.remote.rate_limit import RateLimit
from hai_sync.remote.wire import merge, require_tree, told_of

if TYPE_CHECKING:
    from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceAsyncStub

AWAY = {Unreachable.default_reason, "NO_LEADER", "DEPOSED", "STORAGE_BUSY"}
"""A server that was lost, one that leaves, and one that begins to lead while the one before it leaves."""
TRIES = 8
"""At a server that went away in the middle of something: some 12 s."""
RENEW_SECONDS = 5.0
TAGS = 1000
"""As many as a workspace may have."""


class Remote:
    """The server's side of one workspace. `user` is empty for the caller's own."""

    def __init__(self, connection: Connection, name: str, user: str = "") -> None:
        self.connection = connection
        self.name = name
        self.user = user
        self.pace = RateLimit()
        self.passed_over: dict[str, str] = {}  # what the last look found that is never synced: why
        self.case_insensitive = False  # its storage, as it was said the last time
        self.patient = True  # with a server that went away; else whoever asks has patience
        self._met = False  # it was there

    @cached_property
    def stub(self) -> WorkspaceServiceAsyncStub:
        """The calls."""
        return self.connection.stub(WorkspaceServiceStub)

    async def get(self) -> Workspace:
        """What the server says of it. Raises NotFound."""
        request = wire_pb.GetWorkspaceRequest(name=self.name, user=self.user)
        found = await self.connection.unary(self.stub.GetWorkspace, request, retry=True)
        self._met = True
        self.case_insensitive = found.case_insensitive
        return found

    async def create(self) -> Workspace:
        """Make it, or take the one that is there."""
        with suppress(NotFound):
            return await self.get()
        request = wire_pb.CreateWorkspaceRequest(workspace=Workspace(name=self.name))
        return await self.connection.unary(self.stub.CreateWorkspace, request)

    async def delete(self) -> None:
        """Remove it with its files."""
        request = wire_pb.DeleteWorkspaceRequest(name=self.name, user=self.user)
        await self.connection.unary(self.stub.DeleteWorkspace, request)

    async def tree(
        self, known: Tree, since: int, revision: int = 0
    ) -> tuple[int, dict[str, Entry]]:
        """A revision and its tree; `known` is the tree of revision `since`.

        Revision 0 is the newest one after a look at the files, which takes the server its time.
        """
        request = wire_pb.GetTreeRequest(
            name=self.name, user=self.user, since=since, revision=revision
        )
        try:
            revision, tree, changed = await self._read(request, known if since else {})
        except NotFound as error:
            if error.reason != "REVISION_GONE":
                raise
            return await self.tree({}, 0, revision)  # we were away for long
        if changed:
            await asyncio.to_thread(require_tree, tree)
        return revision, tree

    async def written(self, task: int) -> dict[str, Entry]:
        """What the program of a task wrote into its own directory. Raises NotFound."""
        request = wire_pb.GetTreeRequest(name=self.name, user=self.user, task=task)
        _, tree, _ = await self._read(request, {})
        await asyncio.to_thread(require_tree, tree)
        return tree

    async def _read(
        self, request: wire_pb.GetTreeRequest, known: Mapping[str, Entry]
    ) -> tuple[int, dict[str, Entry], bool]:
        """From its begin once more where the server goes away meanwhile; who never met it is told so at once."""
        waits = delays()
        for _ in range(TRIES - 1):
            try:
                return await self._merge(request, known)
            except Unreachable as error:
                self._met = self._met or error.reason in AWAY - {Unreachable.default_reason}
                if not (self.patient and self._met and error.reason in AWAY):
                    raise
            await asyncio.sleep(next(waits))
        return await self._merge(request, known)

    async def _merge(
        self, request: wire_pb.GetTreeRequest, known: Mapping[str, Entry]
    ) -> tuple[int, dict[str, Entry], bool]:
        tree, revision, changed = dict(known), request.since, False
        passed_over: dict[str, str] = {}
        async for answer in self.connection.stream(self.stub.GetTree, request):
            self._met = True
            if answer.revision < max(request.since, 0):
                raise BadPeer(f"the server went back from revision {request.since}")
            revision, changed = answer.revision, changed or bool(answer.entries)
            merge(tree, answer.entries)
            passed_over |= told_of(answer)
        if request.revision == 0:
            self.passed_over = passed_over
        return revision, tree, changed

    @asynccontextmanager
    async def lease(
        self, purpose: str, force: bool = False, client_id: str = ""
    ) -> AsyncIterator[str]:
        """The right to write, renewed until left; yields its token. A `client_id` takes it from its own dead."""
        request = wire_pb.LeaseWorkspaceRequest(
            name=self.name, holder=author(purpose), force=force, client_id=client_id
        )
        lease = await self.connection.unary(self.stub.LeaseWorkspace, request)
        renewing = asyncio.create_task(self._renew(lease))
        try:
            yield lease.token
        finally:
            renewing.cancel()
            await self._release(lease)

    async def _renew(self, lease: WorkspaceLease) -> None:
        request = wire_pb.LeaseWorkspaceRequest(name=self.name, token=lease.token)
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(HaiError):  # a lease that is lost refuses the push itself
                await self.connection.unary(self.stub.LeaseWorkspace, request, retry=True)

    async def _release(self, lease: WorkspaceLease) -> None:
        request = wire_pb.LeaseWorkspaceRequest(name=self.name, token=lease.token, release=True)
        with suppress(HaiError):  # it ends by itself
            await self.connection.unary(self.stub.LeaseWorkspace, request)

    async def revisions(self, count: int, tagged: bool = False) -> Sequence[WorkspaceRevision]:
        """The newest ones; `tagged`: of those that have tags."""
        request = wire_pb.ListRevisionsRequest(
            name=self.name, user=self.user, page_size=count, tagged=tagged
        )
        answer = await self.connection.unary(self.stub.ListRevisions, request, retry=True)
        return [each for each in answer.revisions if each.tags or not tagged]  # older servers: all

    async def number_of(self, revision: str) -> int:
        """Of a number or a tag. Raises NotFound."""
        if revision.isdecimal():
            return int(revision)
        for known in await self.revisions(TAGS, tagged=True):
            if revision in known.tags:
                return known.number
        raise NotFound(
            f"no revision is tagged {revision!r}", hint="`haiworkspace snapshots --tagged`"
        )

    async def tag(self, tag: str, revision: int, force: bool) -> WorkspaceRevision:
        """Call a revision so, and keep it; 0: what is on the cluster now, the same however often it is asked."""
        request = wire_pb.TagRevisionRequest(
            name=self.name, revision=revision or await self._newest(), tag=tag, force=force
        )
        return await self.connection.unary(self.stub.TagRevision, request, retry=True)

    async def _newest(self) -> int:
        """The revision of what is on the cluster now, after a look at the files, of which little is told."""
        since = (await self.get()).revision
        request = wire_pb.GetTreeRequest(name=self.name, since=since)
        return (await self._read(request, {}))[0]

    async def untag(self, tag: str) -> None:
        """No revision is called so any more. Raises NotFound."""
        request = wire_pb.UntagRevisionRequest(name=self.name, tag=tag)
        await self.connection.unary(self.stub.UntagRevision, request)

    async def restore(self, revision: int, paths: Sequence[str], token: str) -> WorkspaceRevision:
        """Make paths again as they were."""
        request = wire_pb.RestoreRevisionRequest(
            name=self.name, revision=revision, paths=paths, lease_token=token
        )
        return await self.connection.unary(self.stub.RestoreRevision, request)

    async def task_trees(self) -> AsyncIterator[TaskTree]:
        """Directories of tasks, newest task first."""
        request = wire_pb.ListTaskTreesRequest(name=self.name, user=self.user, page_size=1000)
        while True:
            page = await self.connection.unary(self.stub.ListTaskTrees, request, retry=True)
            for tree in page.trees:
                yield tree
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def delete_task_tree(self, task: int) -> None:
        """Remove what a task wrote that has ended. Raises NotFound or Conflict."""
        request = wire_pb.DeleteTaskTreeRequest(name=self.name, task=task)
        await self.connection.unary(self.stub.DeleteTaskTree, request)

    async def watch(self) -> AsyncIterator[int]:
        """Numbers of new revisions as they come; ends when the server goes away."""
        request = wire_pb.WatchWorkspaceRequest(name=self.name, user=self.user)
        with suppress(Unreachable):
            async for answer in self.connection.stream(self.stub.WatchWorkspace, request):
                yield answer.revision.number


async def list_workspaces(connection: Connection) -> Sequence[Workspace]:
    """All of the caller's."""
    stub = connection.stub(WorkspaceServiceStub)
    answer = await connection.unary(
        stub.ListWorkspaces, wire_pb.ListWorkspacesRequest(), retry=True
    )
    return answer.workspaces


def author(purpose: str) -> str:
    """This process, for people."""
    return f"{socket.gethostname()} pid {os.getpid()} {purpose}"


def client_id(memory: str) -> str:
    """Whoever holds the lock of a workspace on this machine; `memory`: the name of the index that lies beside it."""
    return f"{socket.gethostname()[:64]}:{memory}"
