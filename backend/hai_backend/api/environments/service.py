"""EnvironmentService: Python environments on the cluster's storage. What may not be seen does not exist."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

from hai.v1 import environment_pb2
from hai.v1 import environment_service_pb2 as pb
from hai.v1.environment_service_pb2_grpc import EnvironmentServiceServicer
from hai_backend.api.environments.build import EnvironmentBuilding, Order
from hai_backend.api.environments.convert import description_to_proto, environment_to_proto, said_of
from hai_backend.api.environments.environments import Environments
from hai_backend.api.environments.uses import layers_in_use, require_unused
from hai_backend.api.server import audit, caller
from hai_backend.api.server.handler_wrapper import Context
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import require_reach
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.user import User
from hai_backend.domain.environment import Environment, EnvironmentName, EnvironmentState
from hai_backend.domain.errors import Denied, Exhausted, Invalid, NotFound, Unavailable, Violation
from hai_backend.environments.description import describe
from hai_backend.environments.wheels import Receiving


class EnvironmentService(EnvironmentServiceServicer):
    """See proto/hai/v1/environment_service.proto for what each call means."""

    def __init__(
        self,
        environments: Environments,
        building: EnvironmentBuilding,
        directory: Directory,
        clock: Clock,
    ) -> None:
        self._environments = environments
        self._building = building
        self._directory = directory
        self._clock = clock

    async def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: Context
    ) -> pb.ListEnvironmentsResponse:
        found = await self._environments.visible(caller.current())
        shown = [self._to_proto(e) for e in found if request.owner in ("", e.owner)]
        used = await self._in_use() if request.layers_in_use else ()
        root = str(self._environments.root)
        return pb.ListEnvironmentsResponse(environments=shown, root=root, layers_in_use=used)

    async def _in_use(self) -> list[str]:
        return sorted(await layers_in_use(self._environments, caller.current().name))

    async def GetEnvironment(
        self, request: pb.GetEnvironmentRequest, context: Context
    ) -> environment_pb2.Environment:
        return self._to_proto(await self._find(request.name, request.owner))

    async def RegisterEnvironment(
        self, request: pb.RegisterEnvironmentRequest, context: Context
    ) -> environment_pb2.Environment:
        identity = caller.current()
        said = said_of(request.environment, identity.name, self._clock.now())
        return self._to_proto(await self._environments.register(said))

    async def DeleteEnvironment(
        self, request: pb.DeleteEnvironmentRequest, context: Context
    ) -> pb.DeleteEnvironmentResponse:
        identity = caller.current()
        found = await self._find(request.name, request.owner)
        if found.owner != identity.name and not identity.administers:
            raise Denied(f"{found.called} belongs to {found.owner}; only its owner may remove it")
        require_reach(identity, found.owner, str(found.called))
        await self._environments.require_removable(found, identity)
        await require_unused(self._environments, found)
        if await self._environments.has_files(found.called):
            await self._building.remove(self._owner(found), found.called)
        await self._environments.forget(found)
        return pb.DeleteEnvironmentResponse()

    async def ExportEnvironment(
        self, request: pb.ExportEnvironmentRequest, context: Context
    ) -> pb.ExportEnvironmentResponse:
        found = await self._find(request.name, request.owner)
        if found.state is not EnvironmentState.READY:
            raise NotFound(f"{found.called} is {found.state}: {found.message}", reason="NOT_READY")
        made = await asyncio.to_thread(describe, self._environments.root, found)
        described = description_to_proto(
            found, made.lock, made.config, made.wanted, made.parent_lock_hash
        )
        return pb.ExportEnvironmentResponse(description=described)

    async def BuildEnvironment(
        self, request_iterator: AsyncIterator[pb.BuildEnvironmentRequest], context: Context
    ) -> AsyncIterator[pb.BuildEnvironmentResponse]:
        first = await anext(request_iterator, pb.BuildEnvironmentRequest())
        if first.WhichOneof("message") != "description":
            raise Invalid((Violation("description", "must be the first message of a build"),))
        audit.tell(f"name={first.description.name[:64]!r} parent={first.description.parent[:64]!r}")
        order = await self._building.order(caller.current(), first.description)
        missing = pb.MissingWheels(sha256=self._building.missing(order))
        yield pb.BuildEnvironmentResponse(missing=missing)
        await self._receive(order, request_iterator)
        async for answer in self._building.build(order):
            if isinstance(answer, Environment):
                yield pb.BuildEnvironmentResponse(environment=self._to_proto(answer))
            else:
                yield pb.BuildEnvironmentResponse(line=answer)

    async def _receive(
        self, order: Order, requests: AsyncIterator[pb.BuildEnvironmentRequest]
    ) -> None:
        """Wheels, one after the other, until the caller closes its side. Raises Invalid."""
        coming: Receiving | None = None
        try:
            async for request in requests:
                part = request.wheel
                if coming is None or coming.sha256 != part.sha256:
                    if coming is not None:
                        await asyncio.to_thread(coming.finish)
                    coming = self._building.receive(order, part.sha256, part.name)
                await asyncio.to_thread(coming.add, part.data)
            if coming is not None:
                await asyncio.to_thread(coming.finish)
        except OSError as error:
            raise _refused(error) from error
        finally:
            if coming is not None:
                coming.drop()

    async def _find(self, name: str, owner: str) -> Environment:
        identity = caller.current()
        called = EnvironmentName(owner or identity.name, name)
        return await self._environments.find(identity, called)

    def _owner(self, found: Environment) -> User:
        return self._directory.user(found.owner)

    def _to_proto(self, environment: Environment) -> environment_pb2.Environment:
        used_by = self._environments.used_by(environment.called)
        return environment_to_proto(environment, self._environments.root, used_by)


def _refused(error: OSError) -> Exhausted | Unavailable:
    """What the storage of wheels says, without its paths."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        full = "the server has no room for wheels; an operator must free some, then send them again"
        return Exhausted(full, reason="DISK_FULL")
    return Unavailable(f"the server cannot keep wheels: {error.strerror}", reason="STORAGE_FAILS")
