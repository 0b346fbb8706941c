"""WorkspaceService: trees of files that clients push, pull and watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from hai.v1 import workspace_pb2
from hai.v1 import workspace_service_pb2 as pb
from hai.v1.workspace_service_pb2_grpc import WorkspaceServiceServicer
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.users.convert import NAME_RULE
from hai_backend.api.workspaces.access import Workspaces
from hai_backend.api.workspaces.cluster_changes import ClusterChangeWatcher
from hai_backend.api.workspaces.convert import lease_to_proto, revision_to_proto, workspace_to_proto
from hai_backend.api.workspaces.push import PushHandler
from hai_backend.api.workspaces.push_reader import PushMessage
from hai_backend.api.workspaces.revisions import Revisions
from hai_backend.api.workspaces.task_trees import TaskTrees
from hai_backend.api.workspaces.trees import Trees
from hai_backend.domain.errors import NotFound
from hai_backend.domain.workspace import PassedOver


class WorkspaceService(WorkspaceServiceServicer):
    """See proto/hai/v1/workspace_service.proto for what each call means."""

    def __init__(
        self,
        workspaces: Workspaces,
        trees: Trees,
        watcher: ClusterChangeWatcher,
        push_handler: PushHandler,
        revisions: Revisions,
        task_trees: TaskTrees,
    ) -> None:
        self._workspaces = workspaces
        self._registry = workspaces.registry
        self._trees = trees
        self._watcher = watcher
        self._push_handler = push_handler
        self._revisions = revisions
        self._task_trees = task_trees

    async def ListWorkspaces(
        self, request: pb.ListWorkspacesRequest, context: Context
    ) -> pb.ListWorkspacesResponse:
        found = await self._workspaces.visible(current_caller(), request.user)
        return pb.ListWorkspacesResponse(workspaces=map(workspace_to_proto, found))

    async def GetWorkspace(
        self, request: pb.GetWorkspaceRequest, context: Context
    ) -> workspace_pb2.Workspace:
        async with self._workspaces.open(current_caller(), request.name, request.user) as workspace:
            return workspace_to_proto(await self._workspaces.describe(workspace))

    async def CreateWorkspace(
        self, request: pb.CreateWorkspaceRequest, context: Context
    ) -> workspace_pb2.Workspace:
        name, violations = request.workspace.name, FieldViolations()
        violations.check_pattern("workspace.name", name, NAME, NAME_RULE)
        violations.check_line("request_id", request.request_id, 64)
        violations.raise_if_any()
        identity = current_caller()
        key = (identity.name, name)
        await self._registry.create(key, self._workspaces.clock.now(), request.request_id)
        async with self._registry.open(key) as workspace:
            return workspace_to_proto(await self._workspaces.describe(workspace))

    async def DeleteWorkspace(
        self, request: pb.DeleteWorkspaceRequest, context: Context
    ) -> pb.DeleteWorkspaceResponse:
        await self._workspaces.delete(current_caller(), request.name, request.user)
        return pb.DeleteWorkspaceResponse()

    async def LeaseWorkspace(
        self, request: pb.LeaseWorkspaceRequest, context: Context
    ) -> workspace_pb2.WorkspaceLease:
        leases, now = self._workspaces.leases, self._workspaces.clock.now()
        violations = FieldViolations()
        violations.check_line("client_id", request.client_id, 128)
        violations.raise_if_any()
        async with self._workspaces.open(current_caller(), request.name) as workspace:
            if request.release:
                leases.release(workspace.key, request.token)
                return workspace_pb2.WorkspaceLease()
            if request.token:
                return lease_to_proto(leases.renew(workspace.key, request.token, now))
            newest = await self._registry.run(
                workspace.files.path, workspace.files.index.newest_revision
            )
            lease = leases.acquire(
                workspace.key,
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
        async with (
            self._workspaces.open(current_caller(), request.name, request.user) as workspace,
            aclosing(self._trees.stream_tree(workspace, request)) as responses,
        ):
            async for response in responses:
                yield response

    async def PushTree(
        self, request_iterator: AsyncIterator[PushMessage], context: Context
    ) -> AsyncIterator[pb.PushTreeResponse]:
        async for response in self._push_handler.push(current_caller(), request_iterator):
            yield response

    async def FetchFiles(
        self, request: pb.FetchFilesRequest, context: Context
    ) -> AsyncIterator[pb.FetchFilesResponse]:
        async with (
            self._workspaces.open(current_caller(), request.name, request.user) as workspace,
            aclosing(self._trees.fetch(workspace, request)) as responses,
        ):
            async for response in responses:
                yield response

    async def ListRevisions(
        self, request: pb.ListRevisionsRequest, context: Context
    ) -> pb.ListRevisionsResponse:
        async with self._workspaces.open(current_caller(), request.name, request.user) as workspace:
            return await self._revisions.page(workspace, request)

    async def RestoreRevision(
        self, request: pb.RestoreRevisionRequest, context: Context
    ) -> workspace_pb2.WorkspaceRevision:
        async with self._workspaces.open(current_caller(), request.name) as workspace:
            await self._trees.require_revision(workspace, max(request.revision, 1))
            return revision_to_proto(
                await self._push_handler.restore(
                    workspace, request.revision, list(request.paths), request.lease_token
                )
            )

    async def TagRevision(
        self, request: pb.TagRevisionRequest, context: Context
    ) -> workspace_pb2.WorkspaceRevision:
        async with self._workspaces.open(current_caller(), request.name) as workspace:
            number = request.revision or (await self._trees.scan(workspace, PassedOver())).number
            return revision_to_proto(
                await self._revisions.tag(workspace, number, request.tag, force=request.force)
            )

    async def UntagRevision(
        self, request: pb.UntagRevisionRequest, context: Context
    ) -> pb.UntagRevisionResponse:
        async with self._workspaces.open(current_caller(), request.name) as workspace:
            await self._revisions.untag(workspace, request.tag)
        return pb.UntagRevisionResponse()

    async def ListTaskTrees(
        self, request: pb.ListTaskTreesRequest, context: Context
    ) -> pb.ListTaskTreesResponse:
        async with self._workspaces.open(current_caller(), request.name, request.user) as workspace:
            return await self._task_trees.page(workspace, request.page_size, request.page_token)

    async def DeleteTaskTree(
        self, request: pb.DeleteTaskTreeRequest, context: Context
    ) -> pb.DeleteTaskTreeResponse:
        async with self._workspaces.open(current_caller(), request.name) as workspace:
            await self._task_trees.delete(workspace, request.task)
        return pb.DeleteTaskTreeResponse()

    async def WatchWorkspace(
        self, request: pb.WatchWorkspaceRequest, context: Context
    ) -> AsyncIterator[pb.WatchWorkspaceResponse]:
        async with (
            self._workspaces.open(current_caller(), request.name, request.user) as workspace,
            self._watcher.watching(workspace),
        ):
            sent_number = -1
            while True:
                waiting = asyncio.ensure_future(workspace.wait_for_change())
                try:
                    newest = await self._registry.run(
                        workspace.files.path, workspace.files.index.newest_revision
                    )
                    if newest.number != sent_number:
                        sent_number = newest.number
                        revision = revision_to_proto(newest) if newest.number else None
                        yield pb.WatchWorkspaceResponse(revision=revision)
                    await waiting
                finally:
                    waiting.cancel()
                if workspace.deleting:
                    raise NotFound(f"workspace {workspace.key[1]} was deleted")
