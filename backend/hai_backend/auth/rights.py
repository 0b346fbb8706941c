"""Which rights count for whom: those of the account, those granted to the user, and those of the user's groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hai_backend.auth.grants import SubjectBook, next_expiry
from hai_backend.domain.accounts.right import Grant
from hai_backend.domain.accounts.user import User

Key = tuple[str, bool, str]


def key(grant: Grant) -> Key:
    """What identifies a grant."""
    return grant.subject, grant.subject_is_group, grant.right


def effective(user: User, grants: Iterable[Grant], now: float) -> User:
    """The user with every right that counts now."""
    granted = {
        grant.right
        for grant in grants
        if (grant.expires_at is None or grant.expires_at > now) and _concerns(grant, user)
    }
    return replace(user, rights=tuple(sorted({*user.rights, *granted})))


def _concerns(grant: Grant, user: User) -> bool:
    if grant.subject_is_group:
        return grant.subject in user.groups
    return grant.subject == user.name


class GrantBook(SubjectBook[Grant]):
    """All grants, and what each user is allowed now: every call asks, so it is remembered while it holds."""

    def __init__(self) -> None:
        super().__init__(key)
        self._allowed: dict[str, User] = {}
        self._until = 0.0

    def outdate(self) -> None:
        self._until = 0.0

    def allowed(self, user: User, now: float) -> User:
        """What an account, as it is or would be, is allowed now."""
        return effective(user, self.concerning(user), now)

    def allowed_known(self, user: User, now: float) -> User:
        """The same for an account as it is."""
        if now >= self._until:
            self._allowed = {}
            self._until = next_expiry(self._kept.values(), now)
        known = self._allowed.get(user.name)
        if known is None:
            known = self._allowed[user.name] = self.allowed(user, now)
        return known
