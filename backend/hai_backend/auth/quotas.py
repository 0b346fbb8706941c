"""Which quotas count for whom: own rows beat group rows, of several groups the largest counts, of node limits the
smallest, and expired rows not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hai_backend.auth.grants import SubjectBook, next_expiry
from hai_backend.domain.accounts.user import Quota, User
from hai_backend.domain.priority import Priority
from hai_backend.domain.scheduling.snapshot import QuotaRow

Key = tuple[str, bool, str, Priority]


def key(quota: Quota) -> Key:
    """What identifies a quota."""
    return quota.subject, quota.subject_is_group, quota.group, quota.priority


def effective(user: User, quotas: Iterable[Quota], now: float) -> tuple[QuotaRow, ...]:
    """The rows that count for `user` now, by group and level."""
    own: dict[tuple[str, Priority], int] = {}
    lent: dict[tuple[str, Priority], int] = {}
    for quota in quotas:
        place = (quota.group, quota.priority)
        if quota.expires_at is not None and quota.expires_at <= now:
            continue
        if not quota.subject_is_group and quota.subject == user.name:
            own[place] = quota.nodes
        elif quota.subject_is_group and quota.subject in user.groups:
            lent[place] = _merged(lent.get(place), quota)
    rows = {**lent, **own}
    return tuple(
        QuotaRow(user.name, group, level, rows[group, level]) for group, level in sorted(rows)
    )


def _merged(known: int | None, quota: Quota) -> int:
    if known is None:
        return quota.nodes
    return (min if quota.priority is Priority.AUTO else max)(known, quota.nodes)


class QuotaBook(SubjectBook[Quota]):
    """All quotas, and the rows of each user that count now: found again when time or a change makes them others."""

    def __init__(self, users: Mapping[str, User]) -> None:
        super().__init__(key)
        self._users = users
        self._rows: dict[str, tuple[QuotaRow, ...]] = {}
        self._until = 0.0

    def outdate(self) -> None:
        self._until = 0.0

    def rows(self, now: float) -> Mapping[str, tuple[QuotaRow, ...]]:
        """The rows that count now, by user."""
        if now >= self._until:
            users = self._users.values()
            self._rows = {u.name: effective(u, self.concerning(u), now) for u in users}
            self._until = next_expiry(self._kept.values(), now)
        return self._rows
