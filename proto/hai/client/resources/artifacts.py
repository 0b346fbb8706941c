"""Artifacts: named data that tasks produce and read."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.client.resources.requests import pages
from hai.v1.artifact_pb2 import (
    ARTIFACT_DIRECTION_UNSPECIFIED,
    Artifact,
    ArtifactDirection,
    TaskArtifact,
)
from hai.v1.artifact_service_pb2 import (
    CreateArtifactRequest,
    DeleteArtifactRequest,
    GetArtifactRequest,
    ListArtifactsRequest,
    ListArtifactsResponse,
    ListTaskArtifactsRequest,
    MapArtifactRequest,
    UnmapArtifactRequest,
    UpdateArtifactRequest,
)
from hai.v1.artifact_service_pb2_grpc import ArtifactServiceStub

if TYPE_CHECKING:
    from hai.v1.artifact_service_pb2_grpc import ArtifactServiceAsyncStub


class Artifacts:
    """Calls about artifacts of the caller and of the caller's user groups."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> ArtifactServiceAsyncStub:
        return self._transport.stub(ArtifactServiceStub)

    async def list(self, name: str = "", user_group: str = "") -> Sequence[Artifact]:
        """Return the artifacts that are visible to the caller, optionally only those of one name or user group."""

        def fetch_page(token: str) -> Awaitable[ListArtifactsResponse]:
            request = ListArtifactsRequest(name=name, user_group=user_group, page_token=token)
            return self._transport.unary(self._stub.ListArtifacts, request, retry=True)

        return [artifact async for page in pages(fetch_page) for artifact in page.artifacts]

    async def get(
        self, name: str, version: str = "", user_group: str = "", owner: str = ""
    ) -> Artifact:
        """Return one artifact. `owner` applies to private ones; by default it is the caller."""
        request = GetArtifactRequest(name=name, version=version, user_group=user_group, owner=owner)
        return await self._transport.unary(self._stub.GetArtifact, request, retry=True)

    async def create(self, artifact: Artifact) -> Artifact:
        """Add an artifact, private or of a user group of the caller."""
        request = CreateArtifactRequest(artifact=artifact)
        return await self._transport.unary(self._stub.CreateArtifact, request)

    async def update(self, artifact: Artifact) -> Artifact:
        """Change the type, location and description of an artifact."""
        request = UpdateArtifactRequest(artifact=artifact)
        return await self._transport.unary(self._stub.UpdateArtifact, request, retry=True)

    async def delete(
        self, name: str, version: str = "", user_group: str = "", owner: str = ""
    ) -> None:
        """Remove an artifact from the list. Its files are kept."""
        request = DeleteArtifactRequest(
            name=name, version=version, user_group=user_group, owner=owner
        )
        await self._transport.unary(self._stub.DeleteArtifact, request)

    async def of_task(self, task_id: int) -> Sequence[TaskArtifact]:
        """Return the artifacts of a task, input first."""
        call, request = self._stub.ListTaskArtifacts, ListTaskArtifactsRequest(task_id=task_id)
        return (await self._transport.unary(call, request, retry=True)).artifacts

    async def map(
        self,
        task_id: int,
        direction: ArtifactDirection.ValueType,
        name: str,
        version: str = "",
        user_group: str = "",
    ) -> TaskArtifact:
        """Set the input or output artifact of a task."""
        request = MapArtifactRequest(
            task_id=task_id,
            direction=direction,
            name=name,
            version=version,
            user_group=user_group,
        )
        return await self._transport.unary(self._stub.MapArtifact, request, retry=True)

    async def unmap(
        self, task_id: int, direction: ArtifactDirection.ValueType = ARTIFACT_DIRECTION_UNSPECIFIED
    ) -> None:
        """Remove the input or output artifact of a task, or both."""
        request = UnmapArtifactRequest(task_id=task_id, direction=direction)
        await self._transport.unary(self._stub.UnmapArtifact, request, retry=True)
