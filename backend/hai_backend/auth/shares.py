"""Which share counts for whom: in each node group, that of the first of a user's groups that has one there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hai_backend.domain.snapshot import ShareRow
from hai_backend.domain.user import Share, User

Key = tuple[str, str]


def key(share: Share) -> Key:
    """What identifies a share."""
    return share.user_group, share.group


def rows(users: Iterable[User], shares: Mapping[Key, Share]) -> tuple[ShareRow, ...]:
    """Every share with its users, by key; those without users too: weights and sums show all."""
    of: dict[Key, set[str]] = {known: set() for known in shares}
    groups = {share.group for share in shares.values()}
    for user in users:
        for group in groups:
            found = next((own for own in user.groups if (own, group) in shares), None)
            if found is not None:
                of[found, group].add(user.name)
    return tuple(_row(shares[known], of[known]) for known in sorted(shares))


def _row(share: Share, users: Iterable[str]) -> ShareRow:
    return ShareRow(
        share.user_group,
        share.group,
        frozenset(users),
        share.guaranteed,
        share.weight,
        share.limit,
    )
