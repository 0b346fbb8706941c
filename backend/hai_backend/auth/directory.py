"""Users, rights, quotas, shares and tokens in memory, written through to the store: all calls ask, few change them.

A change is visible to the next call as soon as it is durable; revoking a token needs no waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from hai_backend.auth import quotas as quota_rules
from hai_backend.auth import rights as right_rules
from hai_backend.auth import shares as share_rules
from hai_backend.auth import tokens as token_rules
from hai_backend.auth.permissions import Identity
from hai_backend.domain.errors import Conflict, NotFound, Unauthenticated
from hai_backend.domain.priority import Priority
from hai_backend.domain.right import Grant
from hai_backend.domain.snapshot import QuotaRow, ShareRow
from hai_backend.domain.user import Quota, Role, Share, Token, TokenScope, User

Kept = TypeVar("Kept", Grant, Share)


class UserStore(Protocol):
    """The verbs of store.base.Store that stand for people; rooms beside one another do not import one another."""

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
    async def records(self, kind: type[Kept]) -> list[Kept]: ...
    async def save_record(self, record: object) -> None: ...
    async def delete_record(self, record: object) -> bool: ...


class Directory:
    """Call `load` once before anything else."""

    def __init__(
        self,
        store: UserStore,
        changed: Callable[[], None] = lambda: None,
        admitted_anew: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._admitted_anew = admitted_anew  # somebody was let in before, and may not be any more
        self._changed = changed  # who may run how much has changed: the scheduler looks again
        self._users: dict[str, User] = {}
        self._quotas: dict[quota_rules.Key, Quota] = {}
        self._shares: dict[share_rules.Key, Share] = {}
        self._grants: dict[right_rules.Key, Grant] = {}
        self._effective: dict[str, User] = {}  # with the rights that count now
        self._effective_until = 0.0
        self._tokens: dict[int, Token] = {}
        self._by_digest: dict[str, int] = {}
        self._rows: dict[str, tuple[QuotaRow, ...]] = {}
        self._rows_until = 0.0
        self._share_rows: tuple[ShareRow, ...] | None = None  # None: to be made again
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read everything from the store."""
        self._users = {user.name: user for user in await self._store.users()}
        self._quotas = {quota_rules.key(quota): quota for quota in await self._store.quotas()}
        self._shares = {share_rules.key(share): share for share in await self._store.records(Share)}
        self._grants = {right_rules.key(g): g for g in await self._store.records(Grant)}
        for token in await self._store.tokens():
            self._remember(token)
        self._rows_until, self._share_rows, self._effective_until = 0.0, None, 0.0

    def _remember(self, token: Token) -> Token:
        self._tokens[token.id] = token
        self._by_digest[token.secret_sha256] = token.id
        return token

    # who

    def identify(self, secret: str, now: float) -> Identity:
        """The caller behind a secret. Raises Unauthenticated, with a reason for each cause."""
        token = self._tokens.get(self._by_digest.get(token_rules.digest(secret), -1))
        if token is None:
            raise Unauthenticated(
                "the token is not known here; is it for another cluster? `hai whoami` tells"
            )
        return self._identity(token, now)

    def identity_of(self, token_id: int, now: float) -> Identity:
        """The caller whose token this was when it was checked. Raises Unauthenticated once it is not good any more."""
        token = self._tokens.get(token_id)
        if token is None:
            raise Unauthenticated("the token is not known here")
        return self._identity(token, now)

    def _identity(self, token: Token, now: float) -> Identity:
        token_rules.check(token, now)
        user = self._active(token.user)
        if token.holder:
            self._active(token.holder)
        return Identity(self._as_allowed(user, now), token.scope, token.id, token.holder)

    def _active(self, name: str) -> User:
        user = self._users.get(name)
        if user is None or not user.active:
            raise Unauthenticated(f"{name} is not active; ask an admin", reason="USER_INACTIVE")
        return user

    def as_allowed(self, user: User, now: float) -> User:
        """What an account, as it is or would be, is allowed now."""
        return right_rules.effective(user, self._grants.values(), now)

    def _as_allowed(self, user: User, now: float) -> User:
        """The same for the account as it is, remembered: every call asks."""
        if now >= self._effective_until:
            self._effective = {}
            self._effective_until = right_rules.next_expiry(self._grants.values(), now)
        known = self._effective.get(user.name)
        if known is None:
            known = self._effective[user.name] = self.as_allowed(user, now)
        return known

    def user(self, name: str) -> User:
        """One user. Raises NotFound."""
        try:
            return self._users[name]
        except KeyError:
            raise NotFound(f"there is no user {name!r}; `hai user list` shows all") from None

    def groups_of(self, name: str) -> tuple[str, ...]:
        """User groups of a user; none for one who is not known."""
        user = self._users.get(name)
        return user.groups if user else ()

    def users(self) -> tuple[User, ...]:
        """All, by name."""
        return tuple(self._users[name] for name in sorted(self._users))

    def inactive_users(self) -> frozenset[str]:
        """Those whose tasks may not run."""
        return frozenset(user.name for user in self._users.values() if not user.active)

    async def create_user(self, user: User) -> User:
        """Raises Conflict when the name is taken."""
        async with self._writing:
            if user.name in self._users:
                raise Conflict(f"there is a user {user.name!r} already", reason="NAME_TAKEN")
            return await self._save_user(user)

    async def update_user(self, user: User) -> User:
        """Replace all but name and time of creation. The last active admin stays one."""
        async with self._writing:
            user = replace(user, created_at=self.user(user.name).created_at)
            rest = [u for u in self._users.values() if u.name != user.name]
            if not any(u.active and u.role is Role.ADMIN for u in [*rest, user]):
                raise Conflict(
                    f"{user.name} is the last active admin; make another one first",
                    reason="LAST_ADMIN",
                )
            return await self._save_user(user)

    async def _save_user(self, user: User) -> User:
        await self._store.save_user(user)
        self._users[user.name] = user
        self._effective_until = 0.0
        self._recount()
        self._admitted_anew()
        return user

    def grants(self) -> tuple[Grant, ...]:
        """All as they were granted, by subject and right (expired ones too)."""
        return tuple(self._grants[known] for known in sorted(self._grants))

    async def grant(self, grant: Grant) -> Grant:
        """Grant a right, or change until when."""
        async with self._writing:
            await self._store.save_record(grant)
            self._grants[right_rules.key(grant)] = grant
            self._effective_until = 0.0
        return grant

    async def revoke(self, subject: str, subject_is_group: bool, right: str) -> None:
        """Take back what was granted. Raises NotFound."""
        async with self._writing:
            grant = Grant(subject, subject_is_group, right)
            if not await self._store.delete_record(grant):
                raise NotFound(
                    f"{subject} has not been granted {right}; `hai right list` shows all grants"
                )
            self._grants.pop(right_rules.key(grant), None)
            self._effective_until = 0.0
        self._admitted_anew()

    # how much

    def _recount(self) -> None:
        self._rows_until, self._share_rows = 0.0, None
        self._changed()

    def quota_rows(self, now: float) -> tuple[QuotaRow, ...]:
        """The rows that count now, of all users."""
        self._refresh(now)
        return tuple(row for name in sorted(self._rows) for row in self._rows[name])

    def share_rows_of(self, user: str) -> tuple[ShareRow, ...]:
        """The shares that a user's tasks count for."""
        return tuple(row for row in self.share_rows() if user in row.users)

    def quota_rows_of(self, user: str, now: float) -> tuple[QuotaRow, ...]:
        """The rows that count now for one user."""
        self._refresh(now)
        return self._rows.get(user, ())

    def _refresh(self, now: float) -> None:
        if now < self._rows_until:
            return
        quotas = tuple(self._quotas.values())
        self._rows = {u.name: quota_rules.effective(u, quotas, now) for u in self._users.values()}
        self._rows_until = quota_rules.next_expiry(self._quotas, now)

    def quotas(self) -> tuple[Quota, ...]:
        """All rows as they were set, by subject, group and level (expired ones too)."""
        return tuple(
            sorted(
                self._quotas.values(),
                key=lambda q: (q.subject, q.subject_is_group, q.group, q.priority),
            )
        )

    async def set_quota(self, quota: Quota) -> Quota:
        """Set or replace one row."""
        async with self._writing:
            await self._store.save_quota(quota)
            self._quotas[quota_rules.key(quota)] = quota
            self._recount()
        return quota

    async def delete_quota(
        self, subject: str, subject_is_group: bool, group: str, priority: Priority
    ) -> None:
        """Remove one row. Raises NotFound."""
        async with self._writing:
            if not await self._store.delete_quota(subject, subject_is_group, group, priority):
                raise NotFound(f"{subject} has no quota in group {group} at {priority.name}")
            self._quotas.pop((subject, subject_is_group, group, priority), None)
            self._recount()

    def share_rows(self) -> tuple[ShareRow, ...]:
        """Every share with the users that count for it, by user group and node group."""
        if self._share_rows is None:
            self._share_rows = share_rules.rows(self._users.values(), self._shares)
        return self._share_rows

    def shares(self) -> tuple[Share, ...]:
        """All as they were set, by user group and node group."""
        return tuple(self._shares[known] for known in sorted(self._shares))

    async def set_share(self, share: Share) -> Share:
        """Set or replace one."""
        async with self._writing:
            await self._store.save_record(share)
            self._shares[share_rules.key(share)] = share
            self._recount()
        return share

    async def delete_share(self, user_group: str, group: str) -> None:
        """Remove one. Raises NotFound."""
        async with self._writing:
            if not await self._store.delete_record(Share(user_group, group)):
                raise NotFound(
                    f"{user_group} has no share of group {group}; `hai share list` shows all"
                )
            self._shares.pop((user_group, group), None)
            self._recount()

    # credentials

    def tokens_of(self, user: str) -> tuple[Token, ...]:
        """Those that act as a user or that the user holds, newest first."""
        return tuple(t for t in reversed(self._tokens.values()) if user in (t.user, t.holder))

    def token(self, token_id: int) -> Token:
        """One token. Raises NotFound."""
        try:
            return self._tokens[token_id]
        except KeyError:
            raise NotFound(f"there is no token {token_id}") from None

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
        """A new token and its secret, which nobody can read again; with a holder, to act as the user."""
        secret = token_rules.new_secret()
        digest = token_rules.digest(secret)
        held_by = "" if holder in ("", user) else self.user(holder).name
        new = Token(
            0,
            self.user(user).name,
            scope,
            digest,
            description,
            now,
            expires_at,
            holder=held_by,
        )
        async with self._writing:
            return self._remember(await self._store.create_token(new)), secret

    async def revoke_token(self, token_id: int) -> Token:
        """Make it invalid at once; twice is not an error."""
        async with self._writing:
            revoked = replace(self.token(token_id), revoked=True)
            await self._store.save_token(revoked)
            self._remember(revoked)
        self._admitted_anew()
        return revoked

    async def bootstrap(self, admin: str, now: float, groups: Sequence[str] = ()) -> str | None:
        """On the first start make the first admin and a token; None when there are users already."""
        if self._users and self._tokens:
            return None
        if admin not in self._users:
            await self.create_user(User(admin, Role.ADMIN, tuple(groups), created_at=now))
        return (await self.create_token(admin, TokenScope.ALL, now, description="first admin"))[1]
