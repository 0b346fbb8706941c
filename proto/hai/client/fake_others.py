"""The node, user and server services of the fake server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from hai.client.errors import Conflict, NotFound
from hai.client.fake_world import World, copy
from hai.v1 import node_service_pb2 as nodes
from hai.v1 import user_service_pb2 as users
from hai.v1.node_pb2 import NODE_STATE_READY, Group, Node
from hai.v1.policy_pb2 import SchedulingPolicy
from hai.v1.server_service_pb2 import GetServerInfoRequest, ServerInfo
from hai.v1.user_pb2 import Grant, Quota, Share, Token, User


class FakeNodeService:
    """NodeService over a World; methods are named as in the contract."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _node(self, name: str) -> Node:
        if name not in self._world.nodes:
            raise NotFound(f"there is no node {name!r}", hint="`hai nodes` lists them")
        return self._world.nodes[name]

    def _of(self, group: str) -> list[Node]:
        return [n for _, n in sorted(self._world.nodes.items()) if group in ("", n.group)]

    async def ListNodes(self, request: nodes.ListNodesRequest) -> nodes.ListNodesResponse:
        return nodes.ListNodesResponse(nodes=self._of(request.group))

    async def GetNode(self, request: nodes.GetNodeRequest) -> Node:
        return copy(self._node(request.name))

    async def WatchNodes(
        self, request: nodes.WatchNodesRequest
    ) -> AsyncIterator[nodes.WatchNodesResponse]:
        seen, first = request.after_version, request.after_version == 0
        while True:
            changed = [n for n in self._of(request.group) if first or n.version > seen]
            if changed or first:
                seen, first = self._world.version, False
                yield nodes.WatchNodesResponse(nodes=changed, version=seen)
            if not changed or seen == self._world.version:
                await self._world.next_change()

    async def CordonNode(self, request: nodes.CordonNodeRequest) -> Node:
        return self._cordon(request.name, True, request.reason)

    async def UncordonNode(self, request: nodes.UncordonNodeRequest) -> Node:
        return self._cordon(request.name, False, "")

    async def DrainNode(self, request: nodes.DrainNodeRequest) -> Node:
        return self._cordon(request.name, True, request.reason)

    async def LabelNode(self, request: nodes.LabelNodeRequest) -> Node:
        """Takes every key and value: what they may be is the server's to say."""
        node = self._node(request.name)
        for key in request.remove:
            node.labels.pop(key, None)
        node.labels.update(request.labels)
        return self._world.node_changed(node)

    def _cordon(self, name: str, cordoned: bool, reason: str) -> Node:
        node = self._node(name)
        node.cordoned, node.reason = cordoned, reason
        return self._world.node_changed(node)

    async def ListGroups(self, request: nodes.ListGroupsRequest) -> nodes.ListGroupsResponse:
        names = sorted({node.group for node in self._world.nodes.values()})
        return nodes.ListGroupsResponse(groups=[self._group(name) for name in names])

    async def UpdateGroup(self, request: nodes.UpdateGroupRequest) -> Group:
        """Knows no scheduler: a preview has an effect, and it is always none."""
        if not self._of(request.name):
            raise NotFound(f"there is no node group {request.name!r}")
        before = copy(self._policy(request.name)), request.name in self._world.packed
        self._apply(request)
        group = self._group(request.name)
        if request.validate_only:
            group.effect.SetInParent()
            self._set(request.name, *before)
        return group

    async def GetSnapshot(
        self, request: nodes.GetSnapshotRequest
    ) -> AsyncIterator[nodes.GetSnapshotResponse]:
        """Knows nodes only."""
        found = [{"name": n.name, "group": n.group, "gpus": n.gpus} for n in self._of("")]
        told = {"format": "hai.snapshot", "version": 1, "now": self._world.now}
        yield nodes.GetSnapshotResponse(
            data=json.dumps({**told, "nodes": found, "tasks": []}).encode() + b"\n"
        )

    def _apply(self, request: nodes.UpdateGroupRequest) -> None:
        policy, packed = copy(self._policy(request.name)), request.name in self._world.packed
        given = copy(request.policy)
        for name in policy.DESCRIPTOR.fields_by_name:
            named = f"policy.{name}" in request.update_mask.paths
            (policy if named else given).ClearField(name)  # type: ignore[arg-type]
        policy.MergeFrom(given)
        packed = request.packed if "packed" in request.update_mask.paths else packed
        self._set(request.name, policy, packed)

    def _set(self, name: str, policy: SchedulingPolicy, packed: bool) -> None:
        self._world.policies[name] = policy
        (self._world.packed.add if packed else self._world.packed.discard)(name)

    def _policy(self, name: str) -> SchedulingPolicy:
        return self._world.policies.get(name, SchedulingPolicy())

    def _group(self, name: str) -> Group:
        members = self._of(name)
        usable = [n for n in members if n.state == NODE_STATE_READY and not n.cordoned]
        return Group(
            name=name,
            packed=name in self._world.packed,
            nodes=len(members),
            usable_nodes=len(usable),
            free_nodes=sum(not n.tenants for n in usable),
            policy=self._policy(name),
            policy_in_force=self._policy(name),
        )


class FakeUserService:
    """UserService over a World; the caller is World.user."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def WhoAmI(self, request: users.WhoAmIRequest) -> users.WhoAmIResponse:
        mine = [t for t in self._world.tokens.values() if t.user == self._world.user]
        quotas = [q for q in self._world.quotas.values() if q.subject == self._world.user]
        return users.WhoAmIResponse(
            user=self._world.users[self._world.user], quotas=quotas, tokens=mine
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
        kept = [q for _, q in sorted(self._world.quotas.items())]
        return users.ListQuotasResponse(
            quotas=[q for q in kept if request.subject in ("", q.subject)]
        )

    async def SetQuota(self, request: users.SetQuotaRequest) -> Quota:
        self._world.quotas[_key(request.quota)] = copy(request.quota)
        return copy(request.quota)

    async def DeleteQuota(self, request: users.DeleteQuotaRequest) -> users.DeleteQuotaResponse:
        if self._world.quotas.pop(_key(request), None) is None:
            raise NotFound(f"{request.subject!r} has no such quota in {request.group!r}")
        return users.DeleteQuotaResponse()

    async def ListShares(self, request: users.ListSharesRequest) -> users.ListSharesResponse:
        kept = [s for _, s in sorted(self._world.shares.items())]
        found = [s for s in kept if request.user_group in ("", s.user_group)]
        return users.ListSharesResponse(shares=[s for s in found if request.group in ("", s.group)])

    async def SetShare(self, request: users.SetShareRequest) -> Share:
        """Knows no users of a group: nothing is ever held."""
        share = copy(request.share)
        share.held = 0
        self._world.shares[share.user_group, share.group] = share
        return copy(share)

    async def DeleteShare(self, request: users.DeleteShareRequest) -> users.DeleteShareResponse:
        if self._world.shares.pop((request.user_group, request.group), None) is None:
            raise NotFound(f"{request.user_group!r} has no share of {request.group!r}")
        return users.DeleteShareResponse()

    async def ListRights(self, request: users.ListRightsRequest) -> users.ListRightsResponse:
        kept = [g for _, g in sorted(self._world.grants.items())]
        return users.ListRightsResponse(
            grants=[g for g in kept if request.subject in ("", g.subject)]
        )

    async def GrantRight(self, request: users.GrantRightRequest) -> Grant:
        self._world.grants[_right(request.grant)] = copy(request.grant)
        return copy(request.grant)

    async def RevokeRight(self, request: users.RevokeRightRequest) -> users.RevokeRightResponse:
        if self._world.grants.pop(_right(request), None) is None:
            raise NotFound(f"{request.subject!r} has not been granted {request.right}")
        return users.RevokeRightResponse()

    async def ListTokens(self, request: users.ListTokensRequest) -> users.ListTokensResponse:
        user = request.user or self._world.user
        kept = [t for _, t in sorted(self._world.tokens.items(), reverse=True)]
        found = [t for t in kept if user in (t.user, t.holder)]
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


class FakeServerService:
    """ServerService over a World."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def GetServerInfo(self, request: GetServerInfoRequest) -> ServerInfo:
        return ServerInfo(
            version="fake",
            protocol="hai.v1",
            cluster="fake",
            launcher="process",
            time=self._world.time(),
        )


def _right(grant: Grant | users.RevokeRightRequest) -> tuple[str, bool, str]:
    return grant.subject, grant.subject_is_group, grant.right


def _key(quota: Quota | users.DeleteQuotaRequest) -> tuple[str, bool, str, int]:
    return quota.subject, quota.subject_is_group, quota.group, quota.priority
