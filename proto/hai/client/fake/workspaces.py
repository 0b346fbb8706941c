"""The workspace and environment services of the fake server. Workspaces have no files."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import FakeService, copy
from hai.v1 import environment_service_pb2 as environments_pb
from hai.v1 import workspace_service_pb2 as workspaces_pb
from hai.v1.environment_pb2 import ENVIRONMENT_STATE_READY, Environment
from hai.v1.workspace_pb2 import Workspace


class FakeWorkspaceService(FakeService):
    async def ListWorkspaces(
        self, request: workspaces_pb.ListWorkspacesRequest
    ) -> workspaces_pb.ListWorkspacesResponse:
        owner = request.user or self._world.user
        workspaces = sorted(self._world.workspaces.items())
        return workspaces_pb.ListWorkspacesResponse(
            workspaces=[w for k, w in workspaces if owner in ("*", k[0])]
        )

    async def GetWorkspace(self, request: workspaces_pb.GetWorkspaceRequest) -> Workspace:
        return copy(self._find(request.name, request.user))

    async def CreateWorkspace(self, request: workspaces_pb.CreateWorkspaceRequest) -> Workspace:
        name, user = request.workspace.name, self._world.user
        if (user, name) in self._world.workspaces:
            raise Conflict(f"there is a workspace {name!r} already")
        new = Workspace(name=name, user=user, path=f"/workspaces/{user}/{name}")
        new.create_time.CopyFrom(self._world.time())
        new.update_time.CopyFrom(self._world.time())
        self._world.workspaces[user, name] = new
        return copy(new)

    async def DeleteWorkspace(
        self, request: workspaces_pb.DeleteWorkspaceRequest
    ) -> workspaces_pb.DeleteWorkspaceResponse:
        found = self._find(request.name, request.user)
        del self._world.workspaces[found.user, found.name]
        return workspaces_pb.DeleteWorkspaceResponse()

    async def ListRevisions(
        self, request: workspaces_pb.ListRevisionsRequest
    ) -> workspaces_pb.ListRevisionsResponse:
        self._find(request.name, request.user)
        return workspaces_pb.ListRevisionsResponse()

    def _find(self, name: str, user: str) -> Workspace:
        found = self._world.workspaces.get((user or self._world.user, name))
        if found is None:
            raise NotFound(f"there is no workspace {name!r}; `hai workspace list` shows yours")
        return found


ROOT = "/environments"


class FakeEnvironmentService(FakeService):
    async def ListEnvironments(
        self, request: environments_pb.ListEnvironmentsRequest
    ) -> environments_pb.ListEnvironmentsResponse:
        environments = [e for _, e in sorted(self._world.environments.items())]
        listed = [e for e in environments if request.owner in ("", e.owner)]
        used = [
            e.layer for e in environments if e.used_by and e.layer and e.owner == self._world.user
        ]
        answer = environments_pb.ListEnvironmentsResponse(environments=listed, root=ROOT)
        answer.layers_in_use.extend(used if request.layers_in_use else ())
        return answer

    async def GetEnvironment(self, request: environments_pb.GetEnvironmentRequest) -> Environment:
        return copy(self._find(request.name, request.owner))

    async def RegisterEnvironment(
        self, request: environments_pb.RegisterEnvironmentRequest
    ) -> Environment:
        return self._store(copy(request.environment))

    async def DeleteEnvironment(
        self, request: environments_pb.DeleteEnvironmentRequest
    ) -> environments_pb.DeleteEnvironmentResponse:
        found = self._find(request.name, request.owner)
        reference = f"{found.name}[{found.owner}]"
        children = [e.name for e in self._world.environments.values() if e.parent == reference]
        if found.used_by or children:
            raise Conflict(f"environment {reference} is used by {[*found.used_by, *children]}")
        del self._world.environments[found.owner, found.name]
        return environments_pb.DeleteEnvironmentResponse()

    async def ExportEnvironment(
        self, request: environments_pb.ExportEnvironmentRequest
    ) -> environments_pb.ExportEnvironmentResponse:
        found = self._find(request.name, request.owner)
        key = (found.owner, found.name)
        return environments_pb.ExportEnvironmentResponse(
            description=self._world.descriptions.get(key)
        )

    async def BuildEnvironment(
        self, requests: AsyncIterator[environments_pb.BuildEnvironmentRequest]
    ) -> AsyncGenerator[environments_pb.BuildEnvironmentResponse, None]:
        description = (await anext(requests)).description
        missing = [s for s in description.local_wheels if s not in self._world.wheels]
        yield environments_pb.BuildEnvironmentResponse(
            missing=environments_pb.MissingWheels(sha256=missing)
        )
        async for request in requests:
            self._world.wheels.add(request.wheel.sha256)
        yield environments_pb.BuildEnvironmentResponse(line=f"building {description.name}")
        new = Environment(
            name=description.name,
            parent=description.parent,
            python_version=description.python_version,
            lock_hash=hashlib.sha256(description.lock.encode()).hexdigest(),
            visibility=description.visibility,
            user_group=description.user_group,
        )
        self._world.descriptions[self._world.user, description.name] = copy(description)
        yield environments_pb.BuildEnvironmentResponse(environment=self._store(new))

    def _store(self, new: Environment) -> Environment:
        new.owner, new.state = self._world.user, ENVIRONMENT_STATE_READY
        new.path = f"{ROOT}/{new.owner}/{new.name}"
        new.update_time.CopyFrom(self._world.time())
        self._world.environments[new.owner, new.name] = new
        return copy(new)

    def _find(self, name: str, owner: str) -> Environment:
        key = (owner or self._world.user, name)
        if key not in self._world.environments:
            raise NotFound(f"there is no environment {key[1]}[{key[0]}]")
        return self._world.environments[key]
