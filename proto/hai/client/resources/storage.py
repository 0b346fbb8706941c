"""Storage in tasks: the mounts of a task, and the rules that define them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.v1.storage_pb2 import MountRule
from hai.v1.storage_service_pb2 import (
    CreateMountRuleRequest,
    CreateMountRuleResponse,
    DeleteMountRuleRequest,
    ListMountRulesRequest,
    ListMountsRequest,
    ListMountsResponse,
)
from hai.v1.storage_service_pb2_grpc import StorageServiceStub

if TYPE_CHECKING:
    from hai.v1.storage_service_pb2_grpc import StorageServiceAsyncStub


class Storage:
    """Calls about mounts and, for operators, mount rules."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> StorageServiceAsyncStub:
        return self._transport.stub(StorageServiceStub)

    async def mounts(self, user: str = "", task_id: int = 0) -> ListMountsResponse:
        """Return the mounts of every task of a user (by default the caller), or of one task."""
        request = ListMountsRequest(user=user, task_id=task_id)
        return await self._transport.unary(self._stub.ListMounts, request, retry=True)

    async def rules(self) -> Sequence[MountRule]:
        """Return all mount rules, by id."""
        call, request = self._stub.ListMountRules, ListMountRulesRequest()
        return (await self._transport.unary(call, request, retry=True)).rules

    async def create_rule(
        self, rule: MountRule, *, force: bool = False, validate_only: bool = False
    ) -> CreateMountRuleResponse:
        """Add a mount rule. The answer contains warnings about it."""
        request = CreateMountRuleRequest(rule=rule, force=force, validate_only=validate_only)
        return await self._transport.unary(self._stub.CreateMountRule, request)

    async def delete_rule(self, id: int) -> None:
        """Remove a mount rule."""
        await self._transport.unary(self._stub.DeleteMountRule, DeleteMountRuleRequest(id=id))
