"""The workspace service of the fake server: their names and numbers; no file is ever in them."""

from __future__ import annotations

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import World, copy
from hai.v1 import workspace_service_pb2 as pb
from hai.v1.workspace_pb2 import Workspace


class FakeWorkspaceService:
    """WorkspaceService over a World; methods are named as in the contract."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListWorkspaces(self, request: pb.ListWorkspacesRequest) -> pb.ListWorkspacesResponse:
        owner = request.user or self._world.user
        workspaces = sorted(self._world.workspaces.items())
        return pb.ListWorkspacesResponse(
            workspaces=[w for k, w in workspaces if owner in ("*", k[0])]
        )

    async def GetWorkspace(self, request: pb.GetWorkspaceRequest) -> Workspace:
        return copy(self._find(request.name, request.user))

    async def CreateWorkspace(self, request: pb.CreateWorkspaceRequest) -> Workspace:
        name, user = request.workspace.name, self._world.user
        if (user, name) in self._world.workspaces:
            raise Conflict(f"there is a workspace {name!r} already")
        made = Workspace(name=name, user=user, path=f"/workspaces/{user}/{name}")
        made.create_time.CopyFrom(self._world.time())
        made.update_time.CopyFrom(self._world.time())
        self._world.workspaces[user, name] = made
        return copy(made)

    async def DeleteWorkspace(
        self, request: pb.DeleteWorkspaceRequest
    ) -> pb.DeleteWorkspaceResponse:
        found = self._find(request.name, request.user)
        del self._world.workspaces[found.user, found.name]
        return pb.DeleteWorkspaceResponse()

    async def ListRevisions(self, request: pb.ListRevisionsRequest) -> pb.ListRevisionsResponse:
        self._find(request.name, request.user)
        return pb.ListRevisionsResponse()

    def _find(self, name: str, user: str) -> Workspace:
        found = self._world.workspaces.get((user or self._world.user, name))
        if found is None:
            raise NotFound(f"there is no workspace {name!r}; `hai workspace list` shows yours")
        return found
