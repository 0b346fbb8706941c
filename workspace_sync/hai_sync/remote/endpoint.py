"""Calls for one workspace on the server: its tree, lease, revisions and tags."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.backoff import delays
from hai.client.connection.transport import Connection, is_loopback
from hai.client.errors import HaiError, NotFound, Unreachable
from hai.client.resources.server import Server
from hai.client.resources.storage import Storage
from hai.v1 import workspace_service_pb2 as wire_pb
from hai.v1.workspace_pb2 import TaskTree, Workspace, WorkspaceLease, WorkspaceRevision
from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceStub
from hai_sync.core.entry import Entry, Tree, is_within
from hai_sync.errors import ProtocolViolation
from hai_sync.remote.wire import merge_entries, passed_over_paths, require_valid_tree

if TYPE_CHECKING:
    from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceAsyncStub

SERVER_LOST_REASONS = {Unreachable.default_reason, "NO_LEADER", "DEPOSED", "STORAGE_BUSY"}
"""Reasons of errors after which another attempt may succeed: the connection broke, the server shuts down, or a new
leader has not taken over yet.
"""
MAX_ATTEMPTS = 8
"""Attempts after the server was lost during an operation. They take about 12 s."""
RENEW_SECONDS = 5.0
MAX_TAGS = 1000
"""The maximum number of tags of a workspace."""


class Remote:
    """One workspace on the server. `user` is its owner, by default the caller."""

    def __init__(self, connection: Connection, name: str, user: str = "") -> None:
        self.connection = connection
        self.name = name
        self.user = user
        self.rate_limit = RateLimit()
        # paths that the last remote scan could not sync, with the reason
        self.passed_over: dict[str, str] = {}
        self.case_insensitive = (
            False  # whether the remote storage ignores case, as of the last `get`
        )
        self.retries = (
            True  # whether to retry when the server is lost; otherwise the caller retries
        )
        self._was_reached = False  # whether the server has answered before

    @cached_property
    def stub(self) -> WorkspaceServiceAsyncStub:
        return self.connection.stub(WorkspaceServiceStub)

    async def get(self) -> Workspace:
        """Return the workspace. Raises NotFound."""
        request = wire_pb.GetWorkspaceRequest(name=self.name, user=self.user)
        found = await self.connection.unary(self.stub.GetWorkspace, request, retry=True)
        self._was_reached = True
        self.case_insensitive = found.case_insensitive
        return found

    async def create(self) -> Workspace:
        """Create the workspace, or return the existing one."""
        with suppress(NotFound):
            return await self.get()
        request = wire_pb.CreateWorkspaceRequest(workspace=Workspace(name=self.name))
        return await self.connection.unary(self.stub.CreateWorkspace, request)

    async def delete(self) -> None:
        """Delete the workspace with its files."""
        request = wire_pb.DeleteWorkspaceRequest(name=self.name, user=self.user)
        await self.connection.unary(self.stub.DeleteWorkspace, request)

    async def tree(
        self, cached: Tree, since: int, revision: int = 0
    ) -> tuple[int, dict[str, Entry]]:
        """Return a revision and its tree. `cached` is the tree of revision `since`.

        Revision 0 makes the server scan the files and return the newest revision, which takes longer.
        """
        request = wire_pb.GetTreeRequest(
            name=self.name, user=self.user, since=since, revision=revision
        )
        try:
            revision, tree, changed = await self._read(request, cached if since else {})
        except NotFound as error:
            if error.reason != "REVISION_GONE":
                raise
            return await self.tree({}, 0, revision)  # the cached revision is too old
        if changed:
            await asyncio.to_thread(require_valid_tree, tree)
        return revision, tree

    async def task_files(self, task: int) -> dict[str, Entry]:
        """Return the files that a task wrote into its directory. Raises NotFound."""
        request = wire_pb.GetTreeRequest(name=self.name, user=self.user, task=task)
        _, tree, _ = await self._read(request, {})
        await asyncio.to_thread(require_valid_tree, tree)
        return tree

    async def _read(
        self, request: wire_pb.GetTreeRequest, cached: Mapping[str, Entry]
    ) -> tuple[int, dict[str, Entry], bool]:
        """Read a tree. If the server is lost meanwhile, start again, but not if it has never answered."""
        retry_delays = delays()
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return await self._merge(request, cached)
            except Unreachable as error:
                self._was_reached = self._was_reached or error.reason in SERVER_LOST_REASONS - {
                    Unreachable.default_reason
                }
                if not (self.retries and self._was_reached and error.reason in SERVER_LOST_REASONS):
                    raise
            await asyncio.sleep(next(retry_delays))
        return await self._merge(request, cached)

    async def _merge(
        self, request: wire_pb.GetTreeRequest, cached: Mapping[str, Entry]
    ) -> tuple[int, dict[str, Entry], bool]:
        """Read a tree and merge it into the cached one. Return revision, tree, and whether anything has changed."""
        tree, revision, changed = dict(cached), request.since, False
        passed_over: dict[str, str] = {}
        async for response in self.connection.stream(self.stub.GetTree, request):
            self._was_reached = True
            if response.revision < max(request.since, 0):
                raise ProtocolViolation(f"the server went back from revision {request.since}")
            revision, changed = response.revision, changed or bool(response.entries)
            merge_entries(tree, response.entries)
            passed_over |= passed_over_paths(response)
        if request.revision == 0:
            self.passed_over = passed_over
        return revision, tree, changed

    @asynccontextmanager
    async def lease(
        self, purpose: str, force: bool = False, client_id: str = ""
    ) -> AsyncIterator[str]:
        """Hold the write lease, renewed until the block ends, and yield its token.

        With a `client_id`, the lease replaces one that a killed process of this client has left.
        """
        request = wire_pb.LeaseWorkspaceRequest(
            name=self.name, holder=describe_process(purpose), force=force, client_id=client_id
        )
        lease = await self.connection.unary(self.stub.LeaseWorkspace, request)
        renewing = asyncio.create_task(self._renew(lease))
        try:
            yield lease.token
        finally:
            renewing.cancel()
            await self._release(lease)

    async def _renew(self, lease: WorkspaceLease) -> None:
        """Renew a lease at intervals until this task is cancelled."""
        request = wire_pb.LeaseWorkspaceRequest(name=self.name, token=lease.token)
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(HaiError):  # the server will refuse a push without a valid lease
                await self.connection.unary(self.stub.LeaseWorkspace, request, retry=True)

    async def _release(self, lease: WorkspaceLease) -> None:
        request = wire_pb.LeaseWorkspaceRequest(name=self.name, token=lease.token, release=True)
        with suppress(HaiError):  # the lease expires by itself
            await self.connection.unary(self.stub.LeaseWorkspace, request)

    async def revisions(self, count: int, tagged: bool = False) -> Sequence[WorkspaceRevision]:
        """Return the newest revisions; with `tagged` only those with tags."""
        request = wire_pb.ListRevisionsRequest(
            name=self.name, user=self.user, page_size=count, tagged=tagged
        )
        response = await self.connection.unary(self.stub.ListRevisions, request, retry=True)
        # older servers ignore `tagged`
        return [each for each in response.revisions if each.tags or not tagged]

    async def resolve_revision(self, revision: str) -> int:
        """Return the number of a revision that is given by number or tag. Raises NotFound."""
        if revision.isdecimal():
            return int(revision)
        for cached in await self.revisions(MAX_TAGS, tagged=True):
            if revision in cached.tags:
                return cached.number
        raise NotFound(
            f"no revision is tagged {revision!r}", hint="`haiworkspace snapshots --tagged`"
        )

    async def tag(self, tag: str, revision: int, force: bool) -> WorkspaceRevision:
        """Tag a revision, which the server then retains. Revision 0 means the files on the cluster now."""
        request = wire_pb.TagRevisionRequest(
            name=self.name, revision=revision or await self._newest_revision(), tag=tag, force=force
        )
        return await self.connection.unary(self.stub.TagRevision, request, retry=True)

    async def _newest_revision(self) -> int:
        """Return the revision of the files on the cluster now. The server scans them and sends only changes."""
        since = (await self.get()).revision
        request = wire_pb.GetTreeRequest(name=self.name, since=since)
        return (await self._read(request, {}))[0]

    async def untag(self, tag: str) -> None:
        """Remove a tag. Raises NotFound."""
        request = wire_pb.UntagRevisionRequest(name=self.name, tag=tag)
        await self.connection.unary(self.stub.UntagRevision, request)

    async def restore(self, revision: int, paths: Sequence[str], token: str) -> WorkspaceRevision:
        """Restore paths on the server from a revision."""
        request = wire_pb.RestoreRevisionRequest(
            name=self.name, revision=revision, paths=paths, lease_token=token
        )
        return await self.connection.unary(self.stub.RestoreRevision, request)

    async def task_trees(self) -> AsyncIterator[TaskTree]:
        """Yield the directories of tasks, newest task first."""
        request = wire_pb.ListTaskTreesRequest(name=self.name, user=self.user, page_size=1000)
        while True:
            page = await self.connection.unary(self.stub.ListTaskTrees, request, retry=True)
            for tree in page.trees:
                yield tree
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def delete_task_tree(self, task: int) -> None:
        """Delete the files of a finished task. Raises NotFound or Conflict."""
        request = wire_pb.DeleteTaskTreeRequest(name=self.name, task=task)
        await self.connection.unary(self.stub.DeleteTaskTree, request)

    async def watch(self) -> AsyncIterator[int]:
        """Yield the numbers of new revisions, until the connection breaks."""
        request = wire_pb.WatchWorkspaceRequest(name=self.name, user=self.user)
        with suppress(Unreachable):
            async for response in self.connection.stream(self.stub.WatchWorkspace, request):
                yield response.revision.number


async def list_workspaces(connection: Connection) -> Sequence[Workspace]:
    """Return all workspaces of the caller."""
    stub = connection.stub(WorkspaceServiceStub)
    response = await connection.unary(
        stub.ListWorkspaces, wire_pb.ListWorkspacesRequest(), retry=True
    )
    return response.workspaces


def describe_process(purpose: str) -> str:
    """Return a description of this process, for the author of a revision and the holder of a lease."""
    return f"{socket.gethostname()} pid {os.getpid()} {purpose}"


def client_id(index_name: str) -> str:
    """Return an id by which the server knows the holder of the local lock, from the name of the index."""
    return f"{socket.gethostname()[:64]}:{index_name}"


class RateLimit:
    """Limits the average bytes per second of transfers. 0 means no limit."""

    def __init__(self, bytes_a_second: int = 0) -> None:
        self._rate = bytes_a_second
        self._free_at = 0.0

    async def wait(self, size: int) -> None:
        """Wait until a message of this size may be sent."""
        if not self._rate:
            return
        now = asyncio.get_running_loop().time()
        starts_at = max(now, self._free_at)
        self._free_at = starts_at + size / self._rate
        if starts_at > now:
            await asyncio.sleep(starts_at - now)


async def existing_targets(connection: Connection, targets: Iterable[str]) -> set[str]:
    """Return the absolute paths among `targets` that exist for tasks, as far as known here. Raises HaiError.

    If tasks run on this machine, its own files decide, else the mounted storage.
    """
    absolute = {target for target in targets if target.startswith("/")}
    if not absolute:
        return set()
    server = await Server(connection).info()
    if server.launcher == "process" and is_loopback(connection.profile.server):
        return await asyncio.to_thread(lambda: set(filter(os.path.exists, absolute)))
    mounts = [mount.mount_path for mount in (await Storage(connection).mounts()).mounts]
    return {target for target in absolute if any(is_within(target, path) for path in mounts)}
