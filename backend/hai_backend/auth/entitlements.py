"""Indexes rights, quotas and shares, and computes which of them apply to each user.

Each index keeps its rows by key. It caches the computed result until a row or a user changes, or a row expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import Quota, Share, User
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow, ShareRow

ShareKey = tuple[str, str]


class Expiring(Protocol):
    """Something that may be valid for a limited time."""

    @property
    def expires_at(self) -> float | None: ...


class ForSubject(Protocol):
    """Something that applies to a user, or to all members of a user group."""

    @property
    def subject(self) -> str: ...
    @property
    def subject_is_group(self) -> bool: ...


Row = TypeVar("Row")
SubjectRow = TypeVar("SubjectRow", bound=ForSubject)


def next_expiry(rows: Iterable[Expiring], now: float) -> float:
    """Return when the next of the rows expires. Infinity if none does."""
    times = (row.expires_at for row in rows if row.expires_at is not None)
    return min((time for time in times if time > now), default=float("inf"))


class RowIndex(Generic[Row]):
    """Rows by key, with a cache that subclasses derive from them."""

    def __init__(self, key: Callable[[Row], Any]) -> None:
        self._key = key
        self._rows: dict[Any, Row] = {}

    def put(self, new: Row) -> None:
        """Add or replace a row."""
        self._rows[self._key(new)] = new
        self.invalidate()

    def remove(self, old: Row) -> None:
        """Remove the row with the same key."""
        self._rows.pop(self._key(old), None)
        self.invalidate()

    def invalidate(self) -> None:
        """Drop the cache after a change of a row or a user."""
        raise NotImplementedError

    def all(self) -> tuple[Row, ...]:
        """Return all rows by key, including expired ones."""
        return tuple(self._rows[key] for key in sorted(self._rows))


class SubjectIndex(RowIndex[SubjectRow]):
    """Rows that apply to users and groups, also indexed by subject."""

    def __init__(self, key: Callable[[SubjectRow], Any]) -> None:
        super().__init__(key)
        self._by_subject: dict[tuple[str, bool], dict[Any, SubjectRow]] = {}

    def put(self, new: SubjectRow) -> None:
        """Add or replace a row."""
        rows = self._by_subject.setdefault((new.subject, new.subject_is_group), {})
        rows[self._key(new)] = new
        super().put(new)

    def remove(self, old: SubjectRow) -> None:
        """Remove the row with the same key."""
        self._by_subject.get((old.subject, old.subject_is_group), {}).pop(self._key(old), None)
        super().remove(old)

    def of_user(self, user: User) -> Iterator[SubjectRow]:
        """Yield the rows of the user and of the user's groups, including expired ones."""
        for subject in ((user.name, False), *((group, True) for group in user.groups)):
            yield from self._by_subject.get(subject, {}).values()


class GrantIndex(SubjectIndex[Grant]):
    """Granted rights, with a cache of the current rights of each user, which every call needs."""

    def __init__(self) -> None:
        super().__init__(lambda grant: (grant.subject, grant.subject_is_group, grant.right))
        self._users: dict[str, User] = {}
        self._valid_until = 0.0

    def invalidate(self) -> None:
        self._valid_until = 0.0

    def with_rights(self, user: User, now: float) -> User:
        """Return the user with all rights that are valid now."""
        return with_rights(user, self.of_user(user), now)

    def cached_with_rights(self, user: User, now: float) -> User:
        """Return the same from the cache. The user must be equal to the stored one."""
        if now >= self._valid_until:
            self._users = {}
            self._valid_until = next_expiry(self._rows.values(), now)
        cached = self._users.get(user.name)
        if cached is None:
            cached = self._users[user.name] = self.with_rights(user, now)
        return cached


def with_rights(user: User, grants: Iterable[Grant], now: float) -> User:
    """Return the user with the rights of the account, and of the grants to the user and the user's groups."""
    granted = {grant.right for grant in grants if _applies(grant, user, now)}
    return replace(user, rights=tuple(sorted({*user.rights, *granted})))


class QuotaIndex(SubjectIndex[Quota]):
    """Quotas, with a cache of the quotas that apply now to each user."""

    def __init__(self, users: Mapping[str, User]) -> None:
        super().__init__(
            lambda quota: (quota.subject, quota.subject_is_group, quota.group, quota.priority)
        )
        self._users = users
        self._by_user: dict[str, tuple[QuotaRow, ...]] = {}
        self._valid_until = 0.0

    def invalidate(self) -> None:
        self._valid_until = 0.0

    def by_user(self, now: float) -> Mapping[str, tuple[QuotaRow, ...]]:
        """Return the quotas that apply now, by user."""
        if now >= self._valid_until:
            users = self._users.values()
            self._by_user = {u.name: effective_quotas(u, self.of_user(u), now) for u in users}
            self._valid_until = next_expiry(self._rows.values(), now)
        return self._by_user


def effective_quotas(user: User, quotas: Iterable[Quota], now: float) -> tuple[QuotaRow, ...]:
    """Return the quotas that apply now to a user, by node group and level.

    A quota of the user overrides those of the user's groups. Of the quotas of several groups the largest one counts.
    At AUTO, which limits all levels together, the smallest one counts.
    """
    of_user: dict[tuple[str, Priority], int] = {}
    of_groups: dict[tuple[str, Priority], int] = {}
    for quota in quotas:
        if not _applies(quota, user, now):
            continue
        key = (quota.group, quota.priority)
        if not quota.subject_is_group:
            of_user[key] = quota.nodes
        else:
            choose = min if quota.priority is Priority.AUTO else max
            of_groups[key] = choose(of_groups.get(key, quota.nodes), quota.nodes)
    rows = {**of_groups, **of_user}
    return tuple(
        QuotaRow(user.name, group, level, rows[group, level]) for group, level in sorted(rows)
    )


def _applies(row: Grant | Quota, user: User, now: float) -> bool:
    if row.expires_at is not None and row.expires_at <= now:
        return False
    return row.subject in user.groups if row.subject_is_group else row.subject == user.name


class ShareIndex(RowIndex[Share]):
    """Shares, with a cache of the shares and their users."""

    def __init__(self, users: Mapping[str, User]) -> None:
        super().__init__(lambda share: (share.user_group, share.group))
        self._users = users
        self._with_users: tuple[ShareRow, ...] | None = None

    def invalidate(self) -> None:
        self._with_users = None

    def with_users(self) -> tuple[ShareRow, ...]:
        """Return `shares_with_users` from the cache."""
        if self._with_users is None:
            self._with_users = shares_with_users(self._users.values(), self._rows)
        return self._with_users


def shares_with_users(
    users: Iterable[User], shares: Mapping[ShareKey, Share]
) -> tuple[ShareRow, ...]:
    """Return every share with its users, by key. Shares without users are included: they count for weights and sums.

    In each node group a user belongs to the share of the first of the user's groups that has a share there.
    """
    members: dict[ShareKey, set[str]] = {key: set() for key in shares}
    groups = {share.group for share in shares.values()}
    for user in users:
        for group in groups:
            user_group = next((name for name in user.groups if (name, group) in shares), None)
            if user_group is not None:
                members[user_group, group].add(user.name)
    return tuple(_share_row(shares[key], members[key]) for key in sorted(shares))


def _share_row(share: Share, users: Iterable[str]) -> ShareRow:
    return ShareRow(
        share.user_group,
        share.group,
        frozenset(users),
        share.guaranteed,
        share.weight,
        share.limit,
    )
