"""StorageService: the mounts of tasks, and the rules that define them. server/methods.py lists who may change them."""

from __future__ import annotations

from hai.v1 import storage_service_pb2 as pb
from hai.v1.storage_service_pb2_grpc import StorageServiceServicer
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.storage.convert import mount_to_proto, rule_to_proto
from hai_backend.api.storage.storage import MountRules
from hai_backend.api.tasks.access import TaskAccess
from hai_backend.auth.permissions import Identity
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.errors import Denied
from hai_backend.domain.task import Task


class StorageService(StorageServiceServicer):
    """See proto/hai/v1/storage_service.proto for what each call means."""

    def __init__(self, storage: MountRules, access: TaskAccess) -> None:
        self._storage = storage
        self._access = access

    async def ListMounts(
        self, request: pb.ListMountsRequest, context: Context
    ) -> pb.ListMountsResponse:
        identity, task = current_caller(), None
        if request.task_id:
            task = await self._access.get_visible(identity, request.task_id)
        manages = identity.has_right(Right.MANAGE_STORAGE)
        user = _target_user(identity, request.user, task, manages)
        mounts, notes_for_operators = await self._storage.mounts(user, task)
        return pb.ListMountsResponse(
            mounts=[mount_to_proto(mount, with_source=manages) for mount in mounts],
            warnings=notes_for_operators if manages else (),
        )

    async def ListMountRules(
        self, request: pb.ListMountRulesRequest, context: Context
    ) -> pb.ListMountRulesResponse:
        return pb.ListMountRulesResponse(rules=map(rule_to_proto, await self._storage.rules()))

    async def CreateMountRule(
        self, request: pb.CreateMountRuleRequest, context: Context
    ) -> pb.CreateMountRuleResponse:
        row, warnings = await self._storage.create(
            request.rule, force=request.force, validate_only=request.validate_only
        )
        return pb.CreateMountRuleResponse(rule=rule_to_proto(row), warnings=warnings)

    async def DeleteMountRule(
        self, request: pb.DeleteMountRuleRequest, context: Context
    ) -> pb.DeleteMountRuleResponse:
        await self._storage.delete(request.id)
        return pb.DeleteMountRuleResponse()


def _target_user(identity: Identity, requested: str, task: Task | None, manages: bool) -> str:
    """Return the user whose mounts are requested. Raises Denied."""
    if task is not None:
        return task.user
    user = requested or identity.name
    if user != identity.name and not manages:
        raise Denied(f"mounts of {user} are for {user} and operators only", reason="ROLE_TOO_LOW")
    return user
