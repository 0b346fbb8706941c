"""Which rights count for whom: those of the account, those granted to the user, and those of the user's groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hai_backend.domain.right import Grant
from hai_backend.domain.user import User

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


def next_expiry(grants: Iterable[Grant], now: float) -> float:
    """When time alone changes the answer of `effective`; infinity: never."""
    moments = (g.expires_at for g in grants if g.expires_at is not None)
    return min((m for m in moments if m > now), default=float("inf"))
