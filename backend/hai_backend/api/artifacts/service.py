"""ArtifactService: the input and output of tasks."""

from __future__ import annotations

from hai.v1 import artifact_pb2
from hai.v1 import artifact_service_pb2 as pb
from hai.v1.artifact_service_pb2_grpc import ArtifactServiceServicer
from hai_backend.api.artifacts.artifacts import Artifacts
from hai_backend.api.artifacts.convert import (
    DEFAULT_VERSION,
    artifact_from_proto,
    artifact_to_proto,
    direction_from_proto,
    directions_from_proto,
    task_artifact_to_proto,
)
from hai_backend.api.request import paging
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.catalog.artifact import Artifact, space_of


class ArtifactService(ArtifactServiceServicer):
    """See proto/hai/v1/artifact_service.proto for what each call means."""

    def __init__(self, artifacts: Artifacts, access: TaskAccess, clock: Clock) -> None:
        self._artifacts = artifacts
        self._access = access
        self._clock = clock

    async def ListArtifacts(
        self, request: pb.ListArtifactsRequest, context: Context
    ) -> pb.ListArtifactsResponse:
        found = sorted(await self._artifacts.visible(current_caller()), key=_sort_key)
        keyed = (
            (_sort_key(artifact), artifact_to_proto(artifact))
            for artifact in found
            if request.name in ("", artifact.name)
            and request.user_group in ("", artifact.user_group)
            and _sort_key(artifact) > request.page_token
        )
        artifacts, token = paging.take_page(keyed, request.page_size)
        return pb.ListArtifactsResponse(artifacts=artifacts, next_page_token=token)

    async def GetArtifact(
        self, request: pb.GetArtifactRequest, context: Context
    ) -> artifact_pb2.Artifact:
        return artifact_to_proto(await self._artifacts.find(current_caller(), *_key(request)))

    async def CreateArtifact(
        self, request: pb.CreateArtifactRequest, context: Context
    ) -> artifact_pb2.Artifact:
        new = self._read(request.artifact, current_caller().name)
        return artifact_to_proto(await self._artifacts.create(current_caller(), new))

    async def UpdateArtifact(
        self, request: pb.UpdateArtifactRequest, context: Context
    ) -> artifact_pb2.Artifact:
        owner = request.artifact.owner or current_caller().name
        updated = self._read(request.artifact, owner)
        return artifact_to_proto(await self._artifacts.update(current_caller(), updated))

    async def DeleteArtifact(
        self, request: pb.DeleteArtifactRequest, context: Context
    ) -> pb.DeleteArtifactResponse:
        await self._artifacts.delete(current_caller(), *_key(request))
        return pb.DeleteArtifactResponse()

    async def ListTaskArtifacts(
        self, request: pb.ListTaskArtifactsRequest, context: Context
    ) -> pb.ListTaskArtifactsResponse:
        identity = current_caller()
        task = await self._access.get_visible(identity, request.task_id)
        found = await self._artifacts.of_task(identity, task)
        return pb.ListTaskArtifactsResponse(
            artifacts=[task_artifact_to_proto(*item) for item in found]
        )

    async def MapArtifact(
        self, request: pb.MapArtifactRequest, context: Context
    ) -> artifact_pb2.TaskArtifact:
        identity, direction = current_caller(), direction_from_proto(request.direction)
        task = await self._access.get_modifiable(identity, request.task_id)
        space = space_of(request.user_group, task.user)
        version = request.version or DEFAULT_VERSION
        artifact = await self._artifacts.find(identity, space, request.name, version)
        mapping = await self._artifacts.map(task, direction, artifact)
        return task_artifact_to_proto(mapping, artifact)

    async def UnmapArtifact(
        self, request: pb.UnmapArtifactRequest, context: Context
    ) -> pb.UnmapArtifactResponse:
        directions = directions_from_proto(request.direction)
        task = await self._access.get_modifiable(current_caller(), request.task_id)
        await self._artifacts.unmap(task, directions)
        return pb.UnmapArtifactResponse()

    def _read(self, message: artifact_pb2.Artifact, owner: str) -> Artifact:
        return artifact_from_proto(message, owner, self._clock.now())


def _key(request: pb.GetArtifactRequest | pb.DeleteArtifactRequest) -> tuple[str, str, str]:
    space = space_of(request.user_group, request.owner or current_caller().name)
    return space, request.name, request.version or DEFAULT_VERSION


def _sort_key(artifact: Artifact) -> str:
    """Return the key by which lists are sorted."""
    return "\0".join((artifact.space, artifact.name, artifact.version))
