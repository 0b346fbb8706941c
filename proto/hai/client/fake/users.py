"""The user service of the fake server. The caller may do everything."""

from __future__ import annotations

from hai.client.errors import Conflict, NotFound
from hai.client.fake.world import FakeService, World, copy
from hai.v1 import user_service_pb2 as users
from hai.v1.task_pb2 import TASK_STATE_RUNNING, Task
from hai.v1.user_pb2 import Grant, Quota, Share, Token, User


class FakeUserService(FakeService):
    """The caller is always World.user."""

    async def WhoAmI(self, request: users.WhoAmIRequest) -> users.WhoAmIResponse:
        own_tokens = [t for t in self._world.tokens.values() if t.user == self._world.user]
        quotas = [q for q in self._world.quotas.values() if q.subject == self._world.user]
        return users.WhoAmIResponse(
            user=self._world.users[self._world.user], quotas=quotas, tokens=own_tokens
        )

    async def ListUsers(self, request: users.ListUsersRequest) -> users.ListUsersResponse:
        return users.ListUsersResponse(users=[u for _, u in sorted(self._world.users.items())])

    async def CreateUser(self, request: users.CreateUserRequest) -> User:
        if request.user.name in self._world.users:
            raise Conflict(f"a user {request.user.name!r} exists already")
        self._world.users[request.user.name] = copy(request.user)
        return copy(request.user)

    async def UpdateUser(self, request: users.UpdateUserRequest) -> User:
        if request.user.name not in self._world.users:
            raise NotFound(f"there is no user {request.user.name!r}")
        self._world.users[request.user.name] = copy(request.user)
        return copy(request.user)

    async def ListQuotas(self, request: users.ListQuotasRequest) -> users.ListQuotasResponse:
        stored = [q for _, q in sorted(self._world.quotas.items())]
        found = [copy(q) for q in stored if request.subject in ("", q.subject)]
        for quota in found:
            quota.used = count_used_nodes(self._world, quota)
        return users.ListQuotasResponse(quotas=found)

    async def SetQuota(self, request: users.SetQuotaRequest) -> Quota:
        self._world.quotas[_quota_key(request.quota)] = copy(request.quota)
        return copy(request.quota)

    async def DeleteQuota(self, request: users.DeleteQuotaRequest) -> users.DeleteQuotaResponse:
        if self._world.quotas.pop(_quota_key(request), None) is None:
            raise NotFound(f"{request.subject!r} has no such quota in {request.group!r}")
        return users.DeleteQuotaResponse()

    async def ListShares(self, request: users.ListSharesRequest) -> users.ListSharesResponse:
        stored = [copy(s) for _, s in sorted(self._world.shares.items())]
        found = [s for s in stored if request.user_group in ("", s.user_group)]
        for share in found:
            share.held = count_share_nodes(self._world, share)
        return users.ListSharesResponse(shares=[s for s in found if request.group in ("", s.group)])

    async def SetShare(self, request: users.SetShareRequest) -> Share:
        share = copy(request.share)
        share.held = count_share_nodes(self._world, share)
        self._world.shares[share.user_group, share.group] = share
        return copy(share)

    async def DeleteShare(self, request: users.DeleteShareRequest) -> users.DeleteShareResponse:
        if self._world.shares.pop((request.user_group, request.group), None) is None:
            raise NotFound(f"{request.user_group!r} has no share of {request.group!r}")
        return users.DeleteShareResponse()

    async def ListRights(self, request: users.ListRightsRequest) -> users.ListRightsResponse:
        stored = [g for _, g in sorted(self._world.grants.items())]
        return users.ListRightsResponse(
            grants=[g for g in stored if request.subject in ("", g.subject)]
        )

    async def GrantRight(self, request: users.GrantRightRequest) -> Grant:
        self._world.grants[_grant_key(request.grant)] = copy(request.grant)
        return copy(request.grant)

    async def RevokeRight(self, request: users.RevokeRightRequest) -> users.RevokeRightResponse:
        if self._world.grants.pop(_grant_key(request), None) is None:
            raise NotFound(f"{request.subject!r} has not been granted {request.right}")
        return users.RevokeRightResponse()

    async def ListTokens(self, request: users.ListTokensRequest) -> users.ListTokensResponse:
        user = request.user or self._world.user
        stored = [t for _, t in sorted(self._world.tokens.items(), reverse=True)]
        found = [t for t in stored if user in (t.user, t.holder)]
        return users.ListTokensResponse(tokens=found)

    async def CreateToken(self, request: users.CreateTokenRequest) -> Token:
        user = request.user or self._world.user
        token = Token(
            id=len(self._world.tokens) + 1,
            user=user,
            scope=request.scope,
            description=request.description,
            create_time=self._world.time(),
            holder="" if request.holder == user else request.holder,
        )
        if request.HasField("expire_time"):
            token.expire_time.CopyFrom(request.expire_time)
        self._world.tokens[token.id] = copy(token)
        token.secret = f"fake-secret-{token.id}"
        return token

    async def RevokeToken(self, request: users.RevokeTokenRequest) -> Token:
        if request.id not in self._world.tokens:
            raise NotFound(f"there is no token {request.id}")
        self._world.tokens[request.id].revoked = True
        return copy(self._world.tokens[request.id])


def count_used_nodes(world: World, quota: Quota) -> int:
    """Return the number of nodes that a user, or the members of a user group, use now."""
    return sum(
        task.node_count
        for task in _running(world, quota.group)
        if quota.priority in (-1, task.priority)
        and quota.subject in (world.groups_of(task.user) if quota.subject_is_group else [task.user])
    )


def count_share_nodes(world: World, share: Share) -> int:
    """Return the number of nodes that count for a share: those of users whose first group is that of the share."""
    return sum(
        task.node_count
        for task in _running(world, share.group)
        if world.groups_of(task.user)[:1] == [share.user_group]
    )


def _running(world: World, group: str) -> list[Task]:
    tasks = world.tasks.values()
    return [t for t in tasks if t.state == TASK_STATE_RUNNING and t.group == group]


def _grant_key(grant: Grant | users.RevokeRightRequest) -> tuple[str, bool, str]:
    return grant.subject, grant.subject_is_group, grant.right


def _quota_key(quota: Quota | users.DeleteQuotaRequest) -> tuple[str, bool, str, int]:
    return quota.subject, quota.subject_is_group, quota.group, quota.priority
