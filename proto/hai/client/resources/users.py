"""Users, rights, quotas, shares and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from hai.client.connection.transport import Transport
from hai.client.resources.requests import timestamp
from hai.v1.user_pb2 import TOKEN_SCOPE_ALL, Grant, Quota, Share, Token, TokenScope, User
from hai.v1.user_service_pb2 import (
    CreateTokenRequest,
    CreateUserRequest,
    DeleteQuotaRequest,
    DeleteShareRequest,
    GrantRightRequest,
    ListQuotasRequest,
    ListRightsRequest,
    ListSharesRequest,
    ListTokensRequest,
    ListUsersRequest,
    RevokeRightRequest,
    RevokeTokenRequest,
    SetQuotaRequest,
    SetShareRequest,
    UpdateUserRequest,
    WhoAmIRequest,
    WhoAmIResponse,
)
from hai.v1.user_service_pb2_grpc import UserServiceStub

if TYPE_CHECKING:
    from hai.v1.user_service_pb2_grpc import UserServiceAsyncStub


class Users:
    """Calls about the caller and, for administrators, about all users."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @cached_property
    def _stub(self) -> UserServiceAsyncStub:
        return self._transport.stub(UserServiceStub)

    async def whoami(self) -> WhoAmIResponse:
        """Return the caller with quotas and tokens."""
        return await self._transport.unary(self._stub.WhoAmI, WhoAmIRequest(), retry=True)

    async def list(self) -> Sequence[User]:
        """Return all users, by name."""
        call = self._stub.ListUsers
        return (await self._transport.unary(call, ListUsersRequest(), retry=True)).users

    async def create(self, user: User) -> User:
        """Add a user."""
        return await self._transport.unary(self._stub.CreateUser, CreateUserRequest(user=user))

    async def update(self, user: User) -> User:
        """Replace every field of a user."""
        request = UpdateUserRequest(user=user)
        return await self._transport.unary(self._stub.UpdateUser, request, retry=True)

    async def quotas(self, subject: str = "") -> Sequence[Quota]:
        """Return the quotas of a user or user group, or all quotas."""
        request = ListQuotasRequest(subject=subject)
        return (await self._transport.unary(self._stub.ListQuotas, request, retry=True)).quotas

    async def set_quota(self, quota: Quota) -> Quota:
        """Add or replace one quota."""
        request = SetQuotaRequest(quota=quota)
        return await self._transport.unary(self._stub.SetQuota, request, retry=True)

    async def delete_quota(
        self, subject: str, group: str, priority: int, subject_is_group: bool = False
    ) -> None:
        """Remove one quota."""
        request = DeleteQuotaRequest(
            subject=subject, subject_is_group=subject_is_group, group=group, priority=priority
        )
        await self._transport.unary(self._stub.DeleteQuota, request)

    async def shares(self, user_group: str = "", group: str = "") -> Sequence[Share]:
        """Return the shares of a user group or of all, in a node group or in all."""
        request = ListSharesRequest(user_group=user_group, group=group)
        return (await self._transport.unary(self._stub.ListShares, request, retry=True)).shares

    async def set_share(self, share: Share) -> Share:
        """Add or replace one share."""
        request = SetShareRequest(share=share)
        return await self._transport.unary(self._stub.SetShare, request, retry=True)

    async def delete_share(self, user_group: str, group: str) -> None:
        """Remove one share."""
        request = DeleteShareRequest(user_group=user_group, group=group)
        await self._transport.unary(self._stub.DeleteShare, request)

    async def rights(self, subject: str = "") -> Sequence[Grant]:
        """Return the rights that were granted to a user or user group, or all granted rights."""
        request = ListRightsRequest(subject=subject)
        return (await self._transport.unary(self._stub.ListRights, request, retry=True)).grants

    async def grant(self, grant: Grant) -> Grant:
        """Grant a right, or change when it expires."""
        request = GrantRightRequest(grant=grant)
        return await self._transport.unary(self._stub.GrantRight, request, retry=True)

    async def revoke(self, subject: str, right: str, subject_is_group: bool = False) -> None:
        """Revoke a right."""
        request = RevokeRightRequest(
            subject=subject, subject_is_group=subject_is_group, right=right
        )
        await self._transport.unary(self._stub.RevokeRight, request)

    async def tokens(self, user: str = "") -> Sequence[Token]:
        """Return the tokens that act as a user (by default the caller) or that the user holds, newest first.

        The answer does not contain the secrets.
        """
        request = ListTokensRequest(user=user)
        return (await self._transport.unary(self._stub.ListTokens, request, retry=True)).tokens

    async def create_token(
        self,
        *,
        user: str = "",
        scope: TokenScope.ValueType = TOKEN_SCOPE_ALL,
        description: str = "",
        expire_time: datetime | None = None,
        holder: str = "",
    ) -> Token:
        """Create a token. If there is a holder, that user may act as `user`. Only this answer contains the secret."""
        request = CreateTokenRequest(
            user=user,
            scope=scope,
            description=description,
            expire_time=timestamp(expire_time),
            holder=holder,
        )
        return await self._transport.unary(self._stub.CreateToken, request)

    async def revoke_token(self, id: int) -> Token:
        """Revoke a token. This takes effect at once."""
        request = RevokeTokenRequest(id=id)
        return await self._transport.unary(self._stub.RevokeToken, request, retry=True)
