"""The environment service of the fake server: it has no files, so what is registered or built is believed."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import World, copy
from hai.v1 import environment_service_pb2 as pb
from hai.v1.environment_pb2 import ENVIRONMENT_STATE_READY, Environment

ROOT = "/environments"


class FakeEnvironmentService:
    """EnvironmentService over a World; methods are named as in the contract."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest
    ) -> pb.ListEnvironmentsResponse:
        environments = [e for _, e in sorted(self._world.environments.items())]
        listed = [e for e in environments if request.owner in ("", e.owner)]
        used = [
            e.layer for e in environments if e.used_by and e.layer and e.owner == self._world.user
        ]
        answer = pb.ListEnvironmentsResponse(environments=listed, root=ROOT)
        answer.layers_in_use.extend(used if request.layers_in_use else ())
        return answer

    async def GetEnvironment(self, request: pb.GetEnvironmentRequest) -> Environment:
        return copy(self._find(request.name, request.owner))

    async def RegisterEnvironment(self, request: pb.RegisterEnvironmentRequest) -> Environment:
        return self._keep(copy(request.environment))

    async def DeleteEnvironment(
        self, request: pb.DeleteEnvironmentRequest
    ) -> pb.DeleteEnvironmentResponse:
        found = self._find(request.name, request.owner)
        called = f"{found.name}[{found.owner}]"
        children = [e.name for e in self._world.environments.values() if e.parent == called]
        if found.used_by or children:
            raise Conflict(f"environment {called} is used by {[*found.used_by, *children]}")
        del self._world.environments[found.owner, found.name]
        return pb.DeleteEnvironmentResponse()

    async def ExportEnvironment(
        self, request: pb.ExportEnvironmentRequest
    ) -> pb.ExportEnvironmentResponse:
        found = self._find(request.name, request.owner)
        key = (found.owner, found.name)
        return pb.ExportEnvironmentResponse(description=self._world.descriptions.get(key))

    async def BuildEnvironment(
        self, requests: AsyncIterator[pb.BuildEnvironmentRequest]
    ) -> AsyncGenerator[pb.BuildEnvironmentResponse, None]:
        description = (await anext(requests)).description
        missing = [s for s in description.local_wheels if s not in self._world.wheels]
        yield pb.BuildEnvironmentResponse(missing=pb.MissingWheels(sha256=missing))
        async for request in requests:
            self._world.wheels.add(request.wheel.sha256)
        yield pb.BuildEnvironmentResponse(line=f"building {description.name}")
        made = Environment(
            name=description.name,
            parent=description.parent,
            python_version=description.python_version,
            lock_hash=hashlib.sha256(description.lock.encode()).hexdigest(),
            visibility=description.visibility,
            user_group=description.user_group,
        )
        self._world.descriptions[self._world.user, description.name] = copy(description)
        yield pb.BuildEnvironmentResponse(environment=self._keep(made))

    def _keep(self, new: Environment) -> Environment:
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
