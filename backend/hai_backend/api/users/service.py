"""UserService: users and their rights, quotas, shares and tokens.

server/methods.py lists who may change them. This module decides who may see them.
"""

from __future__ import annotations

from collections.abc import Iterable

from hai.v1 import user_pb2
from hai.v1 import user_service_pb2 as pb
from hai.v1.user_service_pb2_grpc import UserServiceServicer
from hai_backend.api.nodes.allocation import count_held_nodes
from hai_backend.api.protocols import TaskManager
from hai_backend.api.request import limits
from hai_backend.api.request.field_checks import FieldViolations
from hai_backend.api.server.call_context import Context, current_caller
from hai_backend.api.tasks.validation.validate import read_level
from hai_backend.api.users.convert import (
    grant_from_proto,
    grant_to_proto,
    quota_from_proto,
    quota_to_proto,
    read_expiry,
    scope_from_proto,
    token_to_proto,
    user_from_proto,
    user_to_proto,
)
from hai_backend.api.users.shares import Shares
from hai_backend.auth.directory import Directory
from hai_backend.auth.permissions import (
    Identity,
    find_excess,
    find_ungrantable,
    require_self_or_admin,
)
from hai_backend.controllers.aio.clock import Clock
from hai_backend.domain.accounts.right import Right
from hai_backend.domain.accounts.user import Quota, Token, User
from hai_backend.domain.errors import Denied, NotFound
from hai_backend.domain.priority import Priority


class UserService(UserServiceServicer):
    """See proto/hai/v1/user_service.proto for what each call means."""

    def __init__(
        self, directory: Directory, task_manager: TaskManager, clock: Clock, shares: Shares
    ) -> None:
        self._directory = directory
        self._task_manager = task_manager
        self._clock = clock
        self._shares = shares

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIResponse:
        identity = current_caller()
        rows = self._directory.quota_rows_of(identity.name, self._clock.now())
        return pb.WhoAmIResponse(
            user=user_to_proto(identity.user),
            quotas=self._quotas_to_proto(
                Quota(r.user, False, r.group, r.priority, r.nodes) for r in rows
            ),
            tokens=map(token_to_proto, self._visible_tokens(identity)),
        )

    async def ListUsers(
        self, request: pb.ListUsersRequest, context: Context
    ) -> pb.ListUsersResponse:
        return pb.ListUsersResponse(users=map(user_to_proto, self._directory.users()))

    async def CreateUser(self, request: pb.CreateUserRequest, context: Context) -> user_pb2.User:
        user = user_from_proto(request.user, self._clock.now(), new=True)
        self._require_below(user)
        self._require_grantable(User(user.name), user)
        return user_to_proto(await self._directory.create_user(user))

    async def UpdateUser(self, request: pb.UpdateUserRequest, context: Context) -> user_pb2.User:
        user = user_from_proto(request.user, self._clock.now(), new=False)
        before = self._directory.user(user.name)
        self._require_below(before)
        self._require_below(user)
        self._require_grantable(before, user)
        return user_to_proto(await self._directory.update_user(user))

    def _require_below(self, user: User) -> None:
        """Raise Denied if an account has permissions that the caller lacks."""
        account = self._directory.with_current_rights(user, self._clock.now())
        if excess := find_excess(account, current_caller()):
            raise Denied(
                f"{user.name} has {excess}, which you have not; only admins change such accounts",
                reason="ROLE_TOO_LOW",
            )

    def _require_grantable(self, before: User, user: User) -> None:
        """Raise Denied if the caller may not give the new user groups or uid. Both give access to files of others."""
        used_uids = {each.uid for each in self._directory.users() if each.name != user.name}
        if denied := find_ungrantable(before, user, used_uids, current_caller()):
            raise Denied(
                f"{user.name} cannot get {denied}: that is for admins", reason="ROLE_TOO_LOW"
            )

    def _visible_tokens(self, identity: Identity) -> Iterable[Token]:
        """Return the tokens of the caller. A user who acts as the caller sees only the tokens that they hold."""
        tokens = self._directory.tokens_of(identity.name)
        return (t for t in tokens if identity.holder in ("", t.holder))

    async def ListQuotas(
        self, request: pb.ListQuotasRequest, context: Context
    ) -> pb.ListQuotasResponse:
        identity, subject = current_caller(), request.subject
        _require_may_see(identity, subject, "quotas")
        quotas = (q for q in self._directory.quotas() if _may_see(identity, q.subject))
        return pb.ListQuotasResponse(
            quotas=self._quotas_to_proto(q for q in quotas if subject in ("", q.subject))
        )

    async def SetQuota(self, request: pb.SetQuotaRequest, context: Context) -> user_pb2.Quota:
        quota = quota_from_proto(request.quota, self._clock.now())
        if not quota.subject_is_group:
            self._directory.user(quota.subject)
        return self._quotas_to_proto([await self._directory.set_quota(quota)])[0]

    async def DeleteQuota(
        self, request: pb.DeleteQuotaRequest, context: Context
    ) -> pb.DeleteQuotaResponse:
        violations = FieldViolations()
        priority = read_level("priority", request.priority, violations)
        violations.raise_if_any()
        await self._directory.delete_quota(
            request.subject, request.subject_is_group, request.group, priority
        )
        return pb.DeleteQuotaResponse()

    async def ListShares(
        self, request: pb.ListSharesRequest, context: Context
    ) -> pb.ListSharesResponse:
        identity, user_group = current_caller(), request.user_group
        if user_group and not _may_see_group(identity, user_group):
            raise Denied(
                f"shares of {user_group} are for its users and operators only",
                reason="ROLE_TOO_LOW",
            )
        found = self._shares.find(user_group, request.group)
        visible = [share for share in found if _may_see_group(identity, share.user_group)]
        return pb.ListSharesResponse(shares=self._shares.to_proto(visible))

    async def SetShare(self, request: pb.SetShareRequest, context: Context) -> user_pb2.Share:
        return await self._shares.set(request.share)

    async def DeleteShare(
        self, request: pb.DeleteShareRequest, context: Context
    ) -> pb.DeleteShareResponse:
        await self._directory.delete_share(request.user_group, request.group)
        return pb.DeleteShareResponse()

    async def ListRights(
        self, request: pb.ListRightsRequest, context: Context
    ) -> pb.ListRightsResponse:
        identity, subject = current_caller(), request.subject
        _require_may_see(identity, subject, "rights")
        grants = (g for g in self._directory.grants() if _may_see(identity, g.subject))
        requested = (g for g in grants if subject in ("", g.subject))
        return pb.ListRightsResponse(grants=map(grant_to_proto, requested))

    async def GrantRight(self, request: pb.GrantRightRequest, context: Context) -> user_pb2.Grant:
        grant = grant_from_proto(request.grant, self._clock.now())
        if not grant.subject_is_group:
            self._directory.user(grant.subject)
        return grant_to_proto(await self._directory.grant(grant))

    async def RevokeRight(
        self, request: pb.RevokeRightRequest, context: Context
    ) -> pb.RevokeRightResponse:
        await self._directory.revoke(request.subject, request.subject_is_group, request.right)
        return pb.RevokeRightResponse()

    async def ListTokens(
        self, request: pb.ListTokensRequest, context: Context
    ) -> pb.ListTokensResponse:
        user = request.user or current_caller().name
        self._require_tokens_of(user)
        self._directory.user(user)
        return pb.ListTokensResponse(tokens=map(token_to_proto, self._directory.tokens_of(user)))

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> user_pb2.Token:
        user = request.user or current_caller().name
        self._require_tokens_of(user)
        now, violations = self._clock.now(), FieldViolations()
        scope = scope_from_proto(request.scope, violations)
        description = violations.check_line(
            "description", request.description, limits.DESCRIPTION_CHARS
        )
        expires_at = read_expiry("expire_time", request, now, violations)
        violations.raise_if_any()
        token, secret = await self._directory.create_token(
            user,
            scope,
            now,
            description=description,
            expires_at=expires_at,
            holder=request.holder,
        )
        return token_to_proto(token, secret)

    def _require_tokens_of(self, user: str) -> None:
        """Raise Denied unless the caller may create and list tokens that act as `user`."""
        identity = current_caller()
        if identity.holder:
            raise Denied(f"a token of {identity.actor} makes and lists no tokens")
        if user == identity.name or not identity.has_right(Right.MANAGE_TOKENS):
            require_self_or_admin(identity, user, "tokens")
        else:
            self._require_below(self._directory.user(user))

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> user_pb2.Token:
        identity, token = current_caller(), self._directory.token(request.id)
        if identity.holder and identity.holder != token.holder:
            raise Denied(f"a token of {identity.actor} revokes only tokens of {identity.holder}")
        if identity.name not in (token.user, token.holder):
            if not (identity.administers or identity.has_right(Right.MANAGE_TOKENS)):
                raise NotFound(f"there is no token {request.id}")
            self._require_below(self._directory.user(token.user))
        return token_to_proto(await self._directory.revoke_token(token.id))

    def _quotas_to_proto(self, quotas: Iterable[Quota]) -> list[user_pb2.Quota]:
        """Convert quotas with the nodes in use. A quota of a group has no use: it applies to each member separately."""
        held = count_held_nodes(self._task_manager.unfinished().values())
        return [
            quota_to_proto(
                q, 0 if q.subject_is_group else held[q.subject, q.group, Priority(q.priority)]
            )
            for q in quotas
        ]


def _require_may_see(identity: Identity, subject: str, what: str) -> None:
    """Raise Denied if the caller may not see the rows of a user or user group. An empty subject is always allowed."""
    if subject and not _may_see(identity, subject):
        raise Denied(
            f"{what} of {subject} are for {subject} and operators only", reason="ROLE_TOO_LOW"
        )


def _may_see(identity: Identity, subject: str) -> bool:
    return subject == identity.name or _may_see_group(identity, subject)


def _may_see_group(identity: Identity, user_group: str) -> bool:
    return identity.operates or user_group in identity.user.groups
