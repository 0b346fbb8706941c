"""Keeps users, rights, quotas, shares and tokens in memory, and writes changes through to the store.

Every call reads them, and few calls change them. A change is visible to the next call as soon as it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from hai_backend.auth import permissions
from hai_backend.auth import tokens as token_rules
from hai_backend.auth.entitlements import GrantIndex, QuotaIndex, ShareIndex, next_expiry
from hai_backend.auth.permissions import Identity
from hai_backend.auth.tokens import Keyring
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import Quota, Role, Share, Token, TokenScope, User
from hai_backend.domain.errors import Conflict, NotFound, Unauthenticated
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow, ShareRow

Record = TypeVar("Record", Grant, Share)


class UserStore(Protocol):
    """The methods of store.base.Store that the directory needs."""

    async def users(self) -> list[User]: ...
    async def save_user(self, user: User) -> None: ...
    async def quotas(self) -> list[Quota]: ...
    async def save_quota(self, quota: Quota) -> None: ...
    async def delete_quota(
        self, subject: str, subject_is_group: bool, group: str, priority: Priority
    ) -> bool: ...
    async def tokens(self) -> list[Token]: ...
    async def create_token(self, token: Token) -> Token: ...
    async def save_token(self, token: Token) -> None: ...
    async def delete_token(self, token_id: int) -> bool: ...
    async def records(self, kind: type[Record]) -> list[Record]: ...
    async def save_record(self, record: object) -> None: ...
    async def delete_record(self, record: object) -> bool: ...


class Directory:
    """The users of the platform and everything that belongs to them. `load` must be called first."""

    def __init__(
        self,
        store: UserStore,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self.checks: list[Callable[[], None]] = []
        """Functions that close the streams of users who may no longer have them. Called after each loss of rights."""
        self.on_expiry: Callable[[float | None], None] = lambda expires_at: None
        """Called with the expiry of each new token or grant."""
        self._changed = changed  # called after each change of quotas, shares or users
        self._users: dict[str, User] = {}
        self._quotas = QuotaIndex(self._users)
        self._shares = ShareIndex(self._users)
        self._grants = GrantIndex()
        self._tokens = Keyring()
        self._write_lock = asyncio.Lock()

    async def load(self) -> None:
        """Read everything from the store."""
        self._users.update((user.name, user) for user in await self._store.users())
        for quota in await self._store.quotas():
            self._quotas.put(quota)
        for share in await self._store.records(Share):
            self._shares.put(share)
        for grant in await self._store.records(Grant):
            self._grants.put(grant)
        for token in await self._store.tokens():
            self._tokens.put(token)
        self._invalidate()

    def _invalidate(self) -> None:
        for index in (self._quotas, self._shares, self._grants):
            index.invalidate()

    # users and rights

    def identify(self, secret: str, now: float) -> Identity:
        """Return the identity of the caller who sent a secret. Raises Unauthenticated with the cause as reason."""
        token = self._tokens.find_by_secret(secret)
        if token is None:
            raise Unauthenticated(
                "the token is not known here; is it for another cluster? `hai whoami` tells"
            )
        return self._identity(token, now)

    def identity_of(self, token_id: int, now: float) -> Identity:
        """Return the identity that a token has now. Raises Unauthenticated if the token is no longer valid."""
        token = self._tokens.find(token_id)
        if token is None:
            raise Unauthenticated("the token is not known here")
        return self._identity(token, now)

    def _identity(self, token: Token, now: float) -> Identity:
        token_rules.require_valid(token, now)
        user = self._require_active(token.user)
        if token.holder:
            self._require_active(token.holder)
        user = self._grants.cached_with_rights(user, now)
        user = permissions.limit_to_scope(user, token.scope)
        return Identity(user, token.scope, token.id, token.holder)

    def _require_active(self, name: str) -> User:
        user = self._users.get(name)
        if user is None or not user.active:
            raise Unauthenticated(f"{name} is not active; ask an admin", reason="USER_INACTIVE")
        return user

    def with_current_rights(self, user: User, now: float) -> User:
        """Return a user, who need not be stored, with all rights that are valid now."""
        return self._grants.with_rights(user, now)

    def user(self, name: str) -> User:
        """Return a user. Raises NotFound."""
        try:
            return self._users[name]
        except KeyError:
            raise NotFound(f"there is no user {name!r}; `hai user list` shows all") from None

    def groups_of(self, name: str) -> tuple[str, ...]:
        """Return the user groups of a user. Empty if the user does not exist."""
        user = self._users.get(name)
        return user.groups if user else ()

    def users(self) -> tuple[User, ...]:
        """Return all users by name."""
        return tuple(self._users[name] for name in sorted(self._users))

    def check(self) -> None:
        """Close the streams of users who are no longer allowed to have them."""
        for check in self.checks:
            check()

    def next_expiry(self, now: float) -> float:
        """Return when the next token or grant expires. Infinity if none does."""
        return next_expiry((*self._tokens.unrevoked(), *self._grants.all()), now)

    def inactive_users(self) -> frozenset[str]:
        """Return the users whose tasks may not run."""
        return frozenset(user.name for user in self._users.values() if not user.active)

    async def create_user(self, user: User) -> User:
        """Add a user. Raises Conflict if the name is taken."""
        async with self._write_lock:
            if user.name in self._users:
                raise Conflict(f"there is a user {user.name!r} already", reason="NAME_TAKEN")
            return await self._save_user(user)

    async def update_user(self, user: User) -> User:
        """Replace a user except for the name and the time of creation. Raises Conflict for the last active admin."""
        async with self._write_lock:
            user = replace(user, created_at=self.user(user.name).created_at)
            others = [u for u in self._users.values() if u.name != user.name]
            if not any(u.active and u.role is Role.ADMIN for u in [*others, user]):
                raise Conflict(
                    f"{user.name} is the last active admin; make another one first",
                    reason="LAST_ADMIN",
                )
            return await self._save_user(user)

    async def _save_user(self, user: User) -> User:
        await self._store.save_user(user)
        self._users[user.name] = user
        self._invalidate()
        self._changed()
        self.check()
        return user

    def grants(self) -> tuple[Grant, ...]:
        """Return all grants by subject and right, including expired ones."""
        return self._grants.all()

    async def grant(self, grant: Grant) -> Grant:
        """Grant a right, or change its expiry."""
        async with self._write_lock:
            await self._store.save_record(grant)
            self._grants.put(grant)
        self.check()
        self.on_expiry(grant.expires_at)
        return grant

    async def revoke(self, subject: str, subject_is_group: bool, right: str) -> None:
        """Revoke a grant. Raises NotFound."""
        async with self._write_lock:
            grant = Grant(subject, subject_is_group, right)
            if not await self._store.delete_record(grant):
                raise NotFound(
                    f"{subject} has not been granted {right}; `hai right list` shows all grants"
                )
            self._grants.remove(grant)
        self.check()

    # quotas and shares

    def quota_rows(self, now: float) -> tuple[QuotaRow, ...]:
        """Return the quotas that apply now to all users."""
        rows = self._quotas.by_user(now)
        return tuple(row for name in sorted(rows) for row in rows[name])

    def share_rows_of(self, user: str) -> tuple[ShareRow, ...]:
        """Return the shares to which a user belongs."""
        return tuple(row for row in self.share_rows() if user in row.users)

    def quota_rows_of(self, user: str, now: float) -> tuple[QuotaRow, ...]:
        """Return the quotas that apply now to one user."""
        return self._quotas.by_user(now).get(user, ())

    def quotas(self) -> tuple[Quota, ...]:
        """Return all quotas by subject, group and level, including expired ones."""
        return self._quotas.all()

    async def set_quota(self, quota: Quota) -> Quota:
        """Add or replace a quota."""
        async with self._write_lock:
            await self._store.save_quota(quota)
            self._quotas.put(quota)
            self._changed()
        return quota

    async def delete_quota(
        self, subject: str, subject_is_group: bool, group: str, priority: Priority
    ) -> None:
        """Delete a quota. Raises NotFound."""
        async with self._write_lock:
            if not await self._store.delete_quota(subject, subject_is_group, group, priority):
                raise NotFound(f"{subject} has no quota in group {group} at {priority.name}")
            self._quotas.remove(Quota(subject, subject_is_group, group, priority, 0))
            self._changed()

    def share_rows(self) -> tuple[ShareRow, ...]:
        """Return every share with its users, by user group and node group."""
        return self._shares.with_users()

    def shares(self) -> tuple[Share, ...]:
        """Return all shares by user group and node group."""
        return self._shares.all()

    async def set_share(self, share: Share) -> Share:
        """Add or replace a share."""
        async with self._write_lock:
            await self._store.save_record(share)
            self._shares.put(share)
            self._changed()
        return share

    async def delete_share(self, user_group: str, group: str) -> None:
        """Delete a share. Raises NotFound."""
        async with self._write_lock:
            share = Share(user_group, group)
            if not await self._store.delete_record(share):
                raise NotFound(
                    f"{user_group} has no share of group {group}; `hai share list` shows all"
                )
            self._shares.remove(share)
            self._changed()

    # tokens

    def tokens_of(self, user: str) -> tuple[Token, ...]:
        """Return the tokens that act as a user or that the user holds, newest first."""
        return self._tokens.find_by_user(user)

    def tokens_with(self, scope: TokenScope) -> tuple[Token, ...]:
        """Return the tokens of a scope that were not revoked."""
        return tuple(token for token in self._tokens.unrevoked() if token.scope is scope)

    def token(self, token_id: int) -> Token:
        """Return a token. Raises NotFound."""
        return self._tokens.get(token_id)

    async def create_token(
        self,
        user: str,
        scope: TokenScope,
        now: float,
        *,
        description: str = "",
        expires_at: float | None = None,
        holder: str = "",
    ) -> tuple[Token, str]:
        """Create a token and return it with its secret, which cannot be read again.

        `holder` is the user who gets the token to act as `user`.
        """
        secret = token_rules.new_secret()
        new = Token(
            0,
            self.user(user).name,
            scope,
            token_rules.digest_secret(secret),
            description,
            now,
            expires_at,
            holder="" if holder in ("", user) else self.user(holder).name,
        )
        async with self._write_lock:
            token = self._tokens.put(await self._store.create_token(new))
        self.on_expiry(token.expires_at)
        return token, secret

    async def revoke_token(self, token_id: int) -> Token:
        """Make a token invalid at once. It is not an error if it already is."""
        async with self._write_lock:
            revoked = replace(self.token(token_id), revoked=True)
            await self._store.save_token(revoked)
            self._tokens.put(revoked)
        self.check()
        return revoked

    async def delete_token(self, token_id: int) -> None:
        """Make a token invalid at once, and delete it."""
        async with self._write_lock:
            await self._store.delete_token(token_id)
            self._tokens.remove(token_id)
        self.check()

    async def bootstrap(self, admin: str, now: float, groups: Sequence[str] = ()) -> str | None:
        """Create the first admin on the first start, and return a token. Return None if there are users already."""
        if self._users and self._tokens:
            return None
        if admin not in self._users:
            await self.create_user(User(admin, Role.ADMIN, tuple(groups), created_at=now))
        return (await self.create_token(admin, TokenScope.ALL, now, description="first admin"))[1]
