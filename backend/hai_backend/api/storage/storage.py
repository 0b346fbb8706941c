"""The table of mount rules: resolves them, and checks new ones for conflicts and overrides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from hai.v1 import storage_pb2
from hai_backend.api.storage.convert import rule_from_proto
from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import Role, User
from hai_backend.domain.errors import Conflict, Invalid, NotFound
from hai_backend.domain.mounts.mount import Mount, MountAction, MountRow
from hai_backend.domain.mounts.mount_rules import EVERYBODY, resolve
from hai_backend.domain.task import Task
from hai_backend.store.base import Store

Resolved = tuple[tuple[Mount, ...], tuple[str, ...]]


class MountRules:
    """The mount rules. They are few and rarely needed, so they are not cached."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory
        self._write_lock = asyncio.Lock()

    async def rules(self) -> list[MountRow]:
        """Return all rules by id."""
        return await self._store.records(MountRow)

    async def mounts(self, user: str, task: Task | None) -> Resolved:
        """Return the mounts of a task, or of every task of a user, and notes for operators. Raises Invalid."""
        return resolve(await self.rules(), self._directory.user(user), task)

    async def create(
        self, message: storage_pb2.MountRule, *, force: bool, validate_only: bool
    ) -> tuple[MountRow, list[str]]:
        """Create a rule, and return it with warnings. Raises Invalid with every violation, or Conflict."""
        async with self._write_lock:
            rules = await self.rules()
            row = rule_from_proto(message, 1 + max((r.id for r in rules), default=0))
            contradictions = [*_contradictions(row, rules, self._directory.users())]
            if contradictions and not force:
                raise Conflict(
                    f"{'; '.join(contradictions)}; add it anyway with --force",
                    reason="MOUNT_CONFLICT",
                )
            if not validate_only:
                await self._store.save_record(row)
        unknown = _unknown_owners(row, self._directory.users())
        return row, [*contradictions, *_overridden(row, rules), *unknown]

    async def delete(self, id: int) -> None:
        """Delete a rule. Raises NotFound."""
        async with self._write_lock:
            if not await self._store.delete_record(MountRow((), "", id=id)):
                raise NotFound(f"rule {id} not found; `hai storage rules` shows all")


def _contradictions(
    row: MountRow, rules: Sequence[MountRow], users: Iterable[User]
) -> Iterator[str]:
    """Yield conflicts with rules of the same precedence for the same path. Neither rule would apply."""
    conflicting = [str(other.id) for other in rules if _clash(row, other)]
    if conflicting:
        yield f"rule {', '.join(conflicting)} mounts {row.mount_path} for the same users: neither would apply"
        return
    for user in users:
        before, after = _warnings(rules, user), _warnings([*rules, row], user)
        if new := [note for note in after if note not in before]:
            yield f"for {user.name}: {new[0]}"
            return


def _clash(row: MountRow, other: MountRow) -> bool:
    are_additions = row.action is other.action is MountAction.ADD
    is_same_path = (row.mount_path, bool(row.conditions)) == (
        other.mount_path,
        bool(other.conditions),
    )
    codes = not (row.mount_code and other.mount_code) or bool(row.mount_code & other.mount_code)
    conditions = not row.conditions or set(row.conditions) == set(other.conditions)
    return (
        are_additions
        and is_same_path
        and codes
        and conditions
        and not set(row.owners).isdisjoint(other.owners)
    )


def _warnings(rules: Iterable[MountRow], user: User) -> tuple[str, ...]:
    """Return the notes for rules without mount codes. Other rules are compared by `_clash` only."""
    try:
        return resolve([rule for rule in rules if not rule.mount_code], user, None)[1]
    except Invalid as error:
        return (str(error),)


def _overridden(row: MountRow, rules: Iterable[MountRow]) -> Iterator[str]:
    for other in rules:
        is_same_path = other.mount_path == row.mount_path
        if (
            is_same_path
            and row.action is other.action is MountAction.ADD
            and not _clash(row, other)
        ):
            yield f"rule {other.id} mounts {row.mount_path}, too: where both apply, the more specific one is used"


def _unknown_owners(row: MountRow, users: Sequence[User]) -> Iterator[str]:
    existing = {EVERYBODY, *(role.value for role in Role)}
    for user in users:
        existing |= {user.name, *user.groups}
    for owner in row.owners:
        if owner not in existing:
            yield f"user or user group {owner} not found: the rule applies to nobody yet"
