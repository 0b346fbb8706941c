"""The settings that a pass depends on besides the policy: groups, quotas, shares, inactive users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from hai_backend.domain.node import Group
from hai_backend.domain.scheduling.snapshot import QuotaRow, ShareRow, Snapshot

_Row = TypeVar("_Row", QuotaRow, ShareRow)


@dataclass(frozen=True, slots=True)
class Rules:
    """All rows of these settings."""

    groups: Mapping[str, Group] = field(default_factory=dict)
    quotas: tuple[QuotaRow, ...] = ()
    inactive_users: frozenset[str] = frozenset()
    shares: tuple[ShareRow, ...] = ()

    @staticmethod
    def from_snapshot(snapshot: Snapshot) -> Rules:
        """Return the rules of a snapshot."""
        return Rules(snapshot.groups, snapshot.quotas, snapshot.inactive_users, snapshot.shares)

    def changed_groups(self, before: Rules) -> Iterator[str]:
        """Yield the groups whose rules differ from `before`."""
        if self.groups != before.groups:
            yield from self.groups
            yield from before.groups
        yield from _groups_of(self.quotas, before.quotas)
        yield from _groups_of(self.shares, before.shares)


def _groups_of(now: tuple[_Row, ...], before: tuple[_Row, ...]) -> list[str]:
    """Return the groups of rows that are only in one of the two."""
    if now == before:
        return []
    return sorted(row.group for row in set(now).symmetric_difference(before))
