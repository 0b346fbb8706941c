"""Which quotas count for whom: own rows beat group rows, of several groups the largest counts, of node limits the
smallest, and expired rows not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hai_backend.domain.priority import Priority
from hai_backend.domain.snapshot import QuotaRow
from hai_backend.domain.user import Quota, User

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


def next_expiry(quotas: Mapping[Key, Quota], now: float) -> float:
    """When time alone changes the answer of `effective`; infinity: never."""
    moments = (q.expires_at for q in quotas.values() if q.expires_at is not None)
    return min((m for m in moments if m > now), default=float("inf"))
