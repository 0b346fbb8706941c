"""Which share counts for whom: in each node group, that of the first of a user's groups that has one there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hai_backend.auth.grants import Book
from hai_backend.domain.accounts.user import Share, User
from hai_backend.domain.scheduling.snapshot import ShareRow

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


class ShareBook(Book[Share]):
    """All shares, and the rows that follow from them and the users: made again when either has changed."""

    def __init__(self, users: Mapping[str, User]) -> None:
        super().__init__(key)
        self._users = users
        self._rows: tuple[ShareRow, ...] | None = None  # None: to be made again

    def outdate(self) -> None:
        self._rows = None

    def rows(self) -> tuple[ShareRow, ...]:
        """See `rows`."""
        if self._rows is None:
            self._rows = rows(self._users.values(), self._kept)
        return self._rows
