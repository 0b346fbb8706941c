"""The storage service of the fake server: of templates it fills in {user.name}, and it knows no conditions."""

from __future__ import annotations

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import World, copy
from hai.v1 import storage_service_pb2 as pb
from hai.v1.storage_pb2 import (
    MOUNT_ACTION_ADD,
    MOUNT_ACTION_REMOVE,
    MOUNT_KIND_HOST_PATH,
    Mount,
    MountRule,
)


class FakeStorageService:
    """StorageService over a World; methods are named as in the contract."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ListMounts(self, request: pb.ListMountsRequest) -> pb.ListMountsResponse:
        named = self._world.task(request.task_id).user if request.task_id else request.user
        user = named or self._world.user
        mine = {user, *self._world.groups_of(user), "public"}
        rules = [r for r in self._world.mount_rules.values() if mine & set(r.owners)]
        removed = {r.mount_path for r in rules if r.action == MOUNT_ACTION_REMOVE}
        kept = [r for r in rules if r.action == MOUNT_ACTION_ADD and r.mount_path not in removed]
        return pb.ListMountsResponse(
            mounts=[_mount(rule, user) for rule in sorted(kept, key=lambda r: r.mount_path)]
        )

    async def ListMountRules(self, request: pb.ListMountRulesRequest) -> pb.ListMountRulesResponse:
        return pb.ListMountRulesResponse(rules=self._world.mount_rules.values())

    async def CreateMountRule(
        self, request: pb.CreateMountRuleRequest
    ) -> pb.CreateMountRuleResponse:
        rule, kept = copy(request.rule), self._world.mount_rules
        rule.id = 1 + max(kept, default=0)
        rule.action = rule.action or MOUNT_ACTION_ADD
        rule.kind = rule.kind or MOUNT_KIND_HOST_PATH
        warnings = [
            f"rule {r.id} mounts {r.mount_path}, too" for r in kept.values() if _clash(r, rule)
        ]
        if warnings and not request.force:
            raise Conflict(warnings[0])
        if not request.validate_only:
            kept[rule.id] = rule
        return pb.CreateMountRuleResponse(rule=rule, warnings=warnings)

    async def DeleteMountRule(
        self, request: pb.DeleteMountRuleRequest
    ) -> pb.DeleteMountRuleResponse:
        if self._world.mount_rules.pop(request.id, None) is None:
            raise NotFound(f"there is no rule {request.id}")
        return pb.DeleteMountRuleResponse()


def _clash(one: MountRule, other: MountRule) -> bool:
    both = one.action == other.action == MOUNT_ACTION_ADD
    return both and one.mount_path == other.mount_path and bool(set(one.owners) & set(other.owners))


def _mount(rule: MountRule, user: str) -> Mount:
    return Mount(
        mount_path=rule.mount_path.replace("{user.name}", user),
        kind=rule.kind,
        source=rule.source.replace("{user.name}", user),
        writable=rule.writable,
    )
