"""Workspaces: trees of files that are synchronized with the cluster.

This module only makes the calls. The package hai_sync decides what is sent and fetched.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.workspace_pb2 import Workspace, WorkspaceLease, WorkspaceRevision
from hai.v1.workspace_service_pb2 import (
    CreateWorkspaceRequest,
    DeleteTaskTreeRequest,
    DeleteWorkspaceRequest,
    FetchFilesRequest,
    FetchFilesResponse,
    GetTreeRequest,
    GetTreeResponse,
    GetWorkspaceRequest,
    LeaseWorkspaceRequest,
    ListRevisionsRequest,
    ListRevisionsResponse,
    ListTaskTreesRequest,
    ListTaskTreesResponse,
    ListWorkspacesRequest,
    PushTreeRequest,
    PushTreeResponse,
    RestoreRevisionRequest,
    TagRevisionRequest,
    UntagRevisionRequest,
    WatchWorkspaceRequest,
    WatchWorkspaceResponse,
)
from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceStub

if TYPE_CHECKING:
    from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceAsyncStub


class Workspaces:
    """Calls about workspaces of the caller. Operators may name another user."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> WorkspaceServiceAsyncStub:
        return self._transport.stub(WorkspaceServiceStub)

    async def list(self, user: str = "") -> Sequence[Workspace]:
        """Return the workspaces of a user (by default the caller; `*` for all users)."""
        request = ListWorkspacesRequest(user=user)
        answer = await self._transport.unary(self._stub.ListWorkspaces, request, retry=True)
        return answer.workspaces

    async def get(self, name: str, user: str = "") -> Workspace:
        """Return one workspace."""
        request = GetWorkspaceRequest(name=name, user=user)
        return await self._transport.unary(self._stub.GetWorkspace, request, retry=True)

    async def create(self, name: str, *, request_id: str = "") -> Workspace:
        """Create an empty workspace. The call is safe to repeat with a request id."""
        request = CreateWorkspaceRequest(workspace=Workspace(name=name), request_id=request_id)
        call = self._stub.CreateWorkspace
        return await self._transport.unary(call, request, retry=bool(request_id))

    async def delete(self, name: str, user: str = "") -> None:
        """Delete a workspace with its files."""
        request = DeleteWorkspaceRequest(name=name, user=user)
        await self._transport.unary(self._stub.DeleteWorkspace, request)

    async def lease(self, name: str, holder: str = "", *, force: bool = False) -> WorkspaceLease:
        """Acquire the right to write for 30 s."""
        request = LeaseWorkspaceRequest(name=name, holder=holder, force=force)
        return await self._transport.unary(self._stub.LeaseWorkspace, request)

    async def renew(self, name: str, token: str) -> WorkspaceLease:
        """Renew the right to write for 30 s."""
        request = LeaseWorkspaceRequest(name=name, token=token)
        return await self._transport.unary(self._stub.LeaseWorkspace, request, retry=True)

    async def release(self, name: str, token: str) -> None:
        """Release the right to write."""
        request = LeaseWorkspaceRequest(name=name, token=token, release=True)
        await self._transport.unary(self._stub.LeaseWorkspace, request, retry=True)

    def tree(
        self, name: str, revision: int = 0, *, since: int = 0, user: str = "", task: int = 0
    ) -> AsyncGenerator[GetTreeResponse, None]:
        """Yield the entries of a revision (0 for the current files), or only its differences from `since`."""
        request = GetTreeRequest(name=name, user=user, revision=revision, since=since, task=task)
        return self._transport.stream(self._stub.GetTree, request)

    def push(
        self, requests: AsyncIterator[PushTreeRequest]
    ) -> AsyncGenerator[PushTreeResponse, None]:
        """Push changes, message by message. The last answer contains the new revision."""
        return self._transport.duplex(self._stub.PushTree, requests)

    def fetch(
        self,
        name: str,
        revision: int,
        paths: Iterable[str],
        *,
        offsets: Iterable[int] = (),
        compressed: bool = True,
        user: str = "",
        task: int = 0,
    ) -> AsyncGenerator[FetchFilesResponse, None]:
        """Yield the contents of files of a revision, in the order of `paths`, each from its offset in `offsets`."""
        request = FetchFilesRequest(
            name=name,
            user=user,
            revision=revision,
            paths=paths,
            offsets=offsets,
            accept_compressed=compressed,
            task=task,
        )
        return self._transport.stream(self._stub.FetchFiles, request)

    async def revisions(
        self,
        name: str,
        *,
        page_size: int = 0,
        page_token: str = "",
        user: str = "",
        tagged: bool = False,
    ) -> ListRevisionsResponse:
        """Return one page of revisions, newest first; with `tagged` only those that have tags."""
        request = ListRevisionsRequest(
            name=name, user=user, page_size=page_size, page_token=page_token, tagged=tagged
        )
        return await self._transport.unary(self._stub.ListRevisions, request, retry=True)

    async def restore(
        self, name: str, revision: int, paths: Iterable[str] = (), *, token: str = ""
    ) -> WorkspaceRevision:
        """Restore paths, or all files, to a revision. This creates a new revision."""
        request = RestoreRevisionRequest(
            name=name, revision=revision, paths=paths, lease_token=token
        )
        return await self._transport.unary(self._stub.RestoreRevision, request)

    async def tag(
        self, name: str, tag: str, revision: int = 0, *, force: bool = False
    ) -> WorkspaceRevision:
        """Tag a revision, which protects it from deletion. With `force` the tag is moved from another revision.

        0 means the current files. Their revision may change between two attempts, so that call is not repeated.
        """
        request = TagRevisionRequest(name=name, revision=revision, tag=tag, force=force)
        return await self._transport.unary(self._stub.TagRevision, request, retry=revision > 0)

    async def untag(self, name: str, tag: str) -> None:
        """Delete a tag."""
        request = UntagRevisionRequest(name=name, tag=tag)
        await self._transport.unary(self._stub.UntagRevision, request)

    async def task_trees(
        self, name: str, *, page_size: int = 0, page_token: str = "", user: str = ""
    ) -> ListTaskTreesResponse:
        """Return one page of the directories of tasks, newest task first."""
        request = ListTaskTreesRequest(
            name=name, user=user, page_size=page_size, page_token=page_token
        )
        return await self._transport.unary(self._stub.ListTaskTrees, request, retry=True)

    async def delete_task_tree(self, name: str, task: int) -> None:
        """Remove the files that a finished task wrote."""
        request = DeleteTaskTreeRequest(name=name, task=task)
        await self._transport.unary(self._stub.DeleteTaskTree, request)

    def watch(self, name: str, user: str = "") -> AsyncGenerator[WatchWorkspaceResponse, None]:
        """Yield the newest revision immediately, then each new one."""
        request = WatchWorkspaceRequest(name=name, user=user)
        return self._transport.stream(self._stub.WatchWorkspace, request)
