"""The table of mount rules: what a new one would contradict or override, and what comes of them all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from hai.v1 import storage_pb2
from hai_backend.api.storage.convert import rule_from_proto
from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import Role, User
from hai_backend.domain.errors import Conflict, Invalid, NotFound
from hai_backend.domain.mounts.mount import Mount, MountAction, MountRow
from hai_backend.domain.mounts.rules import EVERYBODY, resolve
from hai_backend.domain.task import Task
from hai_backend.store.base import Store

Found = tuple[tuple[Mount, ...], tuple[str, ...]]


class Storage:
    """Rules are read from the store each time: they are few, and rarely asked for."""

    def __init__(self, store: Store, directory: Directory) -> None:
        self._store = store
        self._directory = directory
        self._writing = asyncio.Lock()

    async def rules(self) -> list[MountRow]:
        """All, by id."""
        return await self._store.records(MountRow)

    async def mounts(self, user: str, task: Task | None) -> Found:
        """What a task, or every task of a user, sees now, and what the operators should know. Raises Invalid."""
        return resolve(await self.rules(), self._directory.user(user), task)

    async def create(
        self, message: storage_pb2.MountRule, *, force: bool, validate_only: bool
    ) -> tuple[MountRow, list[str]]:
        """A new rule and what is odd about it. Raises Invalid with every violation, or Conflict."""
        async with self._writing:
            rules = await self.rules()
            row = rule_from_proto(message, 1 + max((r.id for r in rules), default=0))
            contradictions = [*_contradictions(row, rules, self._directory.users())]
            if contradictions and not force:
                raise Conflict(
                    f"{'; '.join(contradictions)}; add it all the same with --force",
                    reason="MOUNT_CONFLICT",
                )
            if not validate_only:
                await self._store.save_record(row)
        unknown = _unknown_owners(row, self._directory.users())
        return row, [*contradictions, *_overridden(row, rules), *unknown]

    async def delete(self, id: int) -> None:
        """Remove a rule. Raises NotFound."""
        async with self._writing:
            if not await self._store.delete_record(MountRow((), "", id=id)):
                raise NotFound(f"there is no rule {id}; `hai storage rules` shows all")


def _contradictions(
    row: MountRow, rules: Sequence[MountRow], users: Iterable[User]
) -> Iterator[str]:
    """Rules of the same standing that mount the same path: neither would count."""
    alike = [str(other.id) for other in rules if _clash(row, other)]
    if alike:
        yield f"rule {', '.join(alike)} mounts {row.mount_path} for the same people: neither would count"
        return
    for user in users:
        before, after = _notes(rules, user), _notes([*rules, row], user)
        if new := [note for note in after if note not in before]:
            yield f"for {user.name}: {new[0]}"
            return


def _clash(row: MountRow, other: MountRow) -> bool:
    both = row.action is other.action is MountAction.ADD
    same = (row.mount_path, bool(row.conditions)) == (other.mount_path, bool(other.conditions))
    codes = not (row.mount_code and other.mount_code) or bool(row.mount_code & other.mount_code)
    conditions = not row.conditions or set(row.conditions) == set(other.conditions)
    return both and same and codes and conditions and not set(row.owners).isdisjoint(other.owners)


def _notes(rules: Iterable[MountRow], user: User) -> tuple[str, ...]:
    """Of the rules that count for every task; those for some task codes are compared by their words only."""
    try:
        return resolve([rule for rule in rules if not rule.mount_code], user, None)[1]
    except Invalid as error:
        return (str(error),)


def _overridden(row: MountRow, rules: Iterable[MountRow]) -> Iterator[str]:
    for other in rules:
        same = other.mount_path == row.mount_path
        if same and row.action is other.action is MountAction.ADD and not _clash(row, other):
            yield f"rule {other.id} mounts {row.mount_path}, too: for whom both count, the more particular one is used"


def _unknown_owners(row: MountRow, users: Sequence[User]) -> Iterator[str]:
    known = {EVERYBODY, *(role.value for role in Role)}
    for user in users:
        known |= {user.name, *user.groups}
    for owner in row.owners:
        if owner not in known:
            yield f"there is no user and no user group {owner}: the rule counts for nobody of that name yet"
