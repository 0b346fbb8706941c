"""Validates shares of user groups, and counts the nodes that their users hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from hai.client.taskfile.validation.violations import suggestion_text
from hai.v1 import user_pb2
from hai_backend.api.nodes.allocation import count_share_use
from hai_backend.api.nodes.group_capacity import Capacity, GroupCapacity
from hai_backend.api.protocols import TaskManager
from hai_backend.api.request.field_checks import NAME, FieldViolations
from hai_backend.api.users.convert import NAME_RULE, share_from_proto, share_to_proto
from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import Share


class Shares:
    """The shares in the directory, with checks against the nodes of the cluster."""

    def __init__(self, directory: Directory, task_manager: TaskManager, capacity: Capacity) -> None:
        self._directory = directory
        self._task_manager = task_manager
        self._capacity = capacity
        self._write_lock = asyncio.Lock()  # concurrent changes must fit together

    def find(self, user_group: str, group: str) -> list[Share]:
        """Return the shares of a user group in a node group. An empty name means all groups."""
        return [
            share
            for share in self._directory.shares()
            if user_group in ("", share.user_group) and group in ("", share.group)
        ]

    def to_proto(self, shares: Iterable[Share]) -> list[user_pb2.Share]:
        """Convert shares, with the nodes that their users hold."""
        tasks, rows = self._task_manager.unfinished().values(), self._directory.share_rows()
        held = count_share_use(tasks, rows, self._capacity.groups())
        return [share_to_proto(share, held[share.user_group, share.group]) for share in shares]

    async def set(self, message: user_pb2.Share) -> user_pb2.Share:
        """Add or replace a share. Raises Invalid with every violation."""
        async with self._write_lock:
            violations = FieldViolations()
            share = share_from_proto(message, violations)
            _check_group(share, self._directory.shares(), self._capacity.groups(), violations)
            violations.raise_if_any()
            await self._directory.set_share(share)
        return self.to_proto([share])[0]


def _check_group(
    share: Share,
    others: Iterable[Share],
    groups: Mapping[str, GroupCapacity],
    violations: FieldViolations,
) -> None:
    if not NAME.fullmatch(share.group):
        violations.check_pattern("share.group", share.group, NAME, NAME_RULE)
    elif share.group in groups:
        _check_sum(share, others, len(groups[share.group].nodes), violations)
    else:
        hint = suggestion_text(share.group, groups)
        violations.add(
            "share.group",
            f"there is no node group {share.group!r}; `hai groups` lists them{hint}",
            "NO_SUCH_GROUP",
        )


def _check_sum(
    share: Share, all_shares: Iterable[Share], nodes: int, violations: FieldViolations
) -> None:
    """Check that the guaranteed parts fit on the nodes. Only an increase is refused, because nodes may disappear."""
    guaranteed = {s.user_group: s.guaranteed for s in all_shares if s.group == share.group}
    before = guaranteed.pop(share.user_group, 0)
    others = sum(guaranteed.values())
    if nodes and share.guaranteed > before and others + share.guaranteed > nodes:
        violations.add(
            "share.guaranteed",
            f"the guaranteed parts of group {share.group} would add up to "
            f"{others + share.guaranteed} nodes, and it has {nodes}; "
            f"at most {max(0, nodes - others)} can be guaranteed here",
        )
