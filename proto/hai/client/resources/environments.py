"""Python environments on the cluster's storage: the list of the server, and builds on the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.client.errors import NotFound
from hai.v1.environment_pb2 import Environment
from hai.v1.environment_service_pb2 import (
    BuildEnvironmentRequest,
    DeleteEnvironmentRequest,
    EnvironmentDescription,
    ExportEnvironmentRequest,
    GetEnvironmentRequest,
    ListEnvironmentsRequest,
    ListEnvironmentsResponse,
    RegisterEnvironmentRequest,
    WheelPart,
)
from hai.v1.environment_service_pb2_grpc import EnvironmentServiceStub

if TYPE_CHECKING:
    from hai.v1.environment_service_pb2_grpc import EnvironmentServiceAsyncStub

_PART_BYTES = 1 << 20
_WHEELS_DELETED = "WHEELS_GONE"


class Environments:
    """Calls about environments that are visible to the caller."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> EnvironmentServiceAsyncStub:
        return self._transport.stub(EnvironmentServiceStub)

    async def list(self, owner: str = "") -> Sequence[Environment]:
        """Return the environments of an owner, or all, by owner and name."""
        return (await self._list_environments(ListEnvironmentsRequest(owner=owner))).environments

    async def root(self) -> str:
        """Return the directory of all environments on the cluster's storage."""
        return (await self._list_environments(ListEnvironmentsRequest())).root

    async def layers_in_use(self) -> Sequence[str]:
        """Return the layers of the caller that tasks use, or that environments of other users depend on."""
        return (
            await self._list_environments(ListEnvironmentsRequest(layers_in_use=True))
        ).layers_in_use

    async def _list_environments(
        self, request: ListEnvironmentsRequest
    ) -> ListEnvironmentsResponse:
        return await self._transport.unary(self._stub.ListEnvironments, request, retry=True)

    async def get(self, name: str, owner: str = "") -> Environment:
        """Return one environment. The default owner is the caller."""
        request = GetEnvironmentRequest(name=name, owner=owner)
        return await self._transport.unary(self._stub.GetEnvironment, request, retry=True)

    async def register(self, environment: Environment) -> Environment:
        """Register an environment of the caller that was created or changed on the storage."""
        request = RegisterEnvironmentRequest(environment=environment)
        return await self._transport.unary(self._stub.RegisterEnvironment, request, retry=True)

    async def delete(self, name: str, owner: str = "") -> None:
        """Remove an environment, and its files if the server may delete them. Raises Conflict while it is in use."""
        request = DeleteEnvironmentRequest(name=name, owner=owner)
        await self._transport.unary(self._stub.DeleteEnvironment, request)

    async def export(self, name: str, owner: str = "") -> EnvironmentDescription:
        """Return the description from which another cluster can build the same environment."""
        request = ExportEnvironmentRequest(name=name, owner=owner)
        answer = await self._transport.unary(self._stub.ExportEnvironment, request, retry=True)
        return answer.description

    async def build(
        self, description: EnvironmentDescription, wheels: Mapping[str, Path]
    ) -> AsyncGenerator[str | Environment, None]:
        """Build an environment on the cluster. Yield the output line by line, then the environment.

        `wheels` maps SHA-256 digests to files: the local wheels of the description. Only those that the server lacks
        are sent, and they are sent again if the server has deleted one meanwhile.
        """
        try:
            async for answer in self._stream_build(description, wheels):
                yield answer
        except NotFound as error:
            if error.reason != _WHEELS_DELETED:
                raise
            async for answer in self._stream_build(description, wheels):
                yield answer

    async def _stream_build(
        self, description: EnvironmentDescription, wheels: Mapping[str, Path]
    ) -> AsyncGenerator[str | Environment, None]:
        """Build once. The server first answers which wheels it lacks."""
        missing: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
        requests = _build_requests(description, wheels, missing)
        async for answer in self._transport.duplex(self._stub.BuildEnvironment, requests):
            if answer.WhichOneof("message") == "missing":
                missing.set_result(answer.missing.sha256)
            elif answer.WhichOneof("message") == "environment":
                yield answer.environment
            else:
                yield answer.line


async def _build_requests(
    description: EnvironmentDescription,
    wheels: Mapping[str, Path],
    missing: asyncio.Future[Sequence[str]],
) -> AsyncIterator[BuildEnvironmentRequest]:
    """Yield the description and then, once the server has named them, the missing wheels."""
    yield BuildEnvironmentRequest(description=description)
    for sha256 in await missing:
        path = wheels[sha256]
        with path.open("rb") as file:
            while data := await asyncio.to_thread(file.read, _PART_BYTES):
                yield BuildEnvironmentRequest(
                    wheel=WheelPart(name=path.name, sha256=sha256, data=data)
                )
