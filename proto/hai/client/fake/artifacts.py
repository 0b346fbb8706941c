"""The artifact service of the fake server: its caller sees everything."""

from __future__ import annotations

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import World, copy
from hai.v1 import artifact_service_pb2 as pb
from hai.v1.artifact_pb2 import Artifact, ArtifactDirection, TaskArtifact

Key = tuple[str, str, str]
_Named = pb.GetArtifactRequest | pb.DeleteArtifactRequest | Artifact


class FakeArtifactService:
    """ArtifactService over a World; methods are named as in the contract."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListArtifacts(self, request: pb.ListArtifactsRequest) -> pb.ListArtifactsResponse:
        artifacts = [a for _, a in sorted(self._world.artifacts.items())]
        found = [a for a in artifacts if request.name in ("", a.name)]
        return pb.ListArtifactsResponse(
            artifacts=[a for a in found if request.user_group in ("", a.user_group)]
        )

    async def GetArtifact(self, request: pb.GetArtifactRequest) -> Artifact:
        return copy(self._find(self._key(request)))

    async def CreateArtifact(self, request: pb.CreateArtifactRequest) -> Artifact:
        new = copy(request.artifact)
        new.version, new.owner = new.version or "default", self._world.user
        if self._key(new) in self._world.artifacts:
            raise Conflict(f"there is an artifact {new.name}:{new.version} already")
        new.create_time.CopyFrom(self._world.time())
        new.update_time.CopyFrom(self._world.time())
        self._world.artifacts[self._key(new)] = new
        return copy(new)

    async def UpdateArtifact(self, request: pb.UpdateArtifactRequest) -> Artifact:
        stored, requested = self._find(self._key(request.artifact)), request.artifact
        stored.type, stored.location = requested.type, requested.location
        stored.description = requested.description
        stored.update_time.CopyFrom(self._world.time())
        return copy(stored)

    async def DeleteArtifact(self, request: pb.DeleteArtifactRequest) -> pb.DeleteArtifactResponse:
        key = self._key(request)
        self._find(key)
        del self._world.artifacts[key]
        mapped = self._world.task_artifacts
        for where in [where for where, what in mapped.items() if what == key]:
            del mapped[where]
        return pb.DeleteArtifactResponse()

    async def ListTaskArtifacts(
        self, request: pb.ListTaskArtifactsRequest
    ) -> pb.ListTaskArtifactsResponse:
        id = self._world.task(request.task_id).id
        mapped = sorted(w for w in self._world.task_artifacts if w[0] == id)
        return pb.ListTaskArtifactsResponse(artifacts=[self._mapped(where) for where in mapped])

    async def MapArtifact(self, request: pb.MapArtifactRequest) -> TaskArtifact:
        task = self._world.task(request.task_id)
        space = request.user_group or f"~{task.user}"
        key = (space, request.name, request.version or "default")
        self._find(key)
        self._world.task_artifacts[task.id, request.direction] = key
        return self._mapped((task.id, request.direction))

    async def UnmapArtifact(self, request: pb.UnmapArtifactRequest) -> pb.UnmapArtifactResponse:
        for where in list(self._world.task_artifacts):
            if where[0] == request.task_id and request.direction in (0, where[1]):
                del self._world.task_artifacts[where]
        return pb.UnmapArtifactResponse()

    def _mapped(self, where: tuple[int, ArtifactDirection.ValueType]) -> TaskArtifact:
        artifact = self._find(self._world.task_artifacts[where])
        return TaskArtifact(task_id=where[0], direction=where[1], artifact=artifact)

    def _key(self, named: _Named) -> Key:
        space = named.user_group or f"~{named.owner or self._world.user}"
        return space, named.name, named.version or "default"

    def _find(self, key: Key) -> Artifact:
        if key not in self._world.artifacts:
            raise NotFound(f"there is no artifact {key[1]}:{key[2]} in {key[0]}")
        return self._world.artifacts[key]
