"""EnvironmentService: Python environments on the storage of the cluster."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

from hai.v1 import environment_pb2
from hai.v1 import environment_service_pb2 as pb
from hai.v1.environment_service_pb2_grpc import EnvironmentServiceServicer
from hai_backend.api.audit.rows import describe_change
from hai_backend.api.environments.build import BuildRequest, EnvironmentBuilder
from hai_backend.api.environments.convert import (
    description_to_proto,
    environment_from_proto,
    environment_to_proto,
)
from hai_backend.api.environments.environments import Environments
from hai_backend.api.environments.uses import layers_in_use, require_unused
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import require_reach
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.user import User
from hai_backend.domain.environment import Environment, EnvironmentName, EnvironmentState
from hai_backend.domain.errors import Denied, Exhausted, Invalid, NotFound, Unavailable, Violation
from hai_backend.environments.description import describe
from hai_backend.environments.wheels import WheelUpload


class EnvironmentService(EnvironmentServiceServicer):
    """See proto/hai/v1/environment_service.proto for what each call means."""

    def __init__(
        self,
        environments: Environments,
        builder: EnvironmentBuilder,
        directory: Directory,
        clock: Clock,
    ) -> None:
        self._environments = environments
        self._builder = builder
        self._directory = directory
        self._clock = clock

    async def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: Context
    ) -> pb.ListEnvironmentsResponse:
        visible = await self._environments.visible(current_caller())
        messages = [self._to_proto(e) for e in visible if request.owner in ("", e.owner)]
        used = await self._my_layers_in_use() if request.layers_in_use else ()
        root = str(self._environments.root)
        return pb.ListEnvironmentsResponse(environments=messages, root=root, layers_in_use=used)

    async def _my_layers_in_use(self) -> list[str]:
        return sorted(await layers_in_use(self._environments, current_caller().name))

    async def GetEnvironment(
        self, request: pb.GetEnvironmentRequest, context: Context
    ) -> environment_pb2.Environment:
        return self._to_proto(await self._find(request.name, request.owner))

    async def RegisterEnvironment(
        self, request: pb.RegisterEnvironmentRequest, context: Context
    ) -> environment_pb2.Environment:
        identity = current_caller()
        reported = environment_from_proto(request.environment, identity.name, self._clock.now())
        return self._to_proto(await self._environments.register(reported))

    async def DeleteEnvironment(
        self, request: pb.DeleteEnvironmentRequest, context: Context
    ) -> pb.DeleteEnvironmentResponse:
        identity = current_caller()
        environment = await self._find(request.name, request.owner)
        if environment.owner != identity.name and not identity.administers:
            raise Denied(
                f"{environment.full_name} belongs to {environment.owner}; only its owner may remove it"
            )
        require_reach(identity, environment.owner, str(environment.full_name))
        await self._environments.require_removable(environment, identity)
        await require_unused(self._environments, environment)
        if await self._environments.has_files(environment.full_name):
            await self._builder.remove(self._owner(environment), environment.full_name)
        await self._environments.remove_record(environment)
        return pb.DeleteEnvironmentResponse()

    async def ExportEnvironment(
        self, request: pb.ExportEnvironmentRequest, context: Context
    ) -> pb.ExportEnvironmentResponse:
        environment = await self._find(request.name, request.owner)
        if environment.state is not EnvironmentState.READY:
            raise NotFound(
                f"{environment.full_name} is {environment.state}: {environment.message}",
                reason="NOT_READY",
            )
        description = await asyncio.to_thread(describe, self._environments.root, environment)
        message = description_to_proto(
            environment,
            description.lock,
            description.config,
            description.requested,
            description.parent_lock_hash,
        )
        return pb.ExportEnvironmentResponse(description=message)

    async def BuildEnvironment(
        self, request_iterator: AsyncIterator[pb.BuildEnvironmentRequest], context: Context
    ) -> AsyncIterator[pb.BuildEnvironmentResponse]:
        first = await anext(request_iterator, pb.BuildEnvironmentRequest())
        if first.WhichOneof("message") != "description":
            raise Invalid((Violation("description", "must be the first message of a build"),))
        describe_change(
            f"name={first.description.name[:64]!r} parent={first.description.parent[:64]!r}"
        )
        build_request = await self._builder.prepare(current_caller(), first.description)
        missing = pb.MissingWheels(sha256=self._builder.missing(build_request))
        yield pb.BuildEnvironmentResponse(missing=missing)
        await self._receive(build_request, request_iterator)
        async for output in self._builder.build(build_request):
            if isinstance(output, Environment):
                yield pb.BuildEnvironmentResponse(environment=self._to_proto(output))
            else:
                yield pb.BuildEnvironmentResponse(line=output)

    async def _receive(
        self, build_request: BuildRequest, requests: AsyncIterator[pb.BuildEnvironmentRequest]
    ) -> None:
        """Receive wheels one by one until the client closes its side. Raises Invalid."""
        upload: WheelUpload | None = None
        try:
            async for request in requests:
                part = request.wheel
                if upload is None or upload.sha256 != part.sha256:
                    if upload is not None:
                        await asyncio.to_thread(upload.finish)
                    upload = self._builder.receive(build_request, part.sha256, part.name)
                await asyncio.to_thread(upload.add, part.data)
            if upload is not None:
                await asyncio.to_thread(upload.finish)
        except OSError as error:
            raise _storage_error(error) from error
        finally:
            if upload is not None:
                upload.discard()

    async def _find(self, name: str, owner: str) -> Environment:
        identity = current_caller()
        full_name = EnvironmentName(owner or identity.name, name)
        return await self._environments.find(identity, full_name)

    def _owner(self, environment: Environment) -> User:
        return self._directory.user(environment.owner)

    def _to_proto(self, environment: Environment) -> environment_pb2.Environment:
        used_by = self._environments.used_by(environment.full_name)
        return environment_to_proto(environment, self._environments.root, used_by)


def _storage_error(error: OSError) -> Exhausted | Unavailable:
    """Convert an error of the storage of wheels, without its paths."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        message = (
            "the server has no space for wheels; an operator must free some, then send them again"
        )
        return Exhausted(message, reason="DISK_FULL")
    return Unavailable(f"the server cannot store wheels: {error.strerror}", reason="STORAGE_FAILS")
