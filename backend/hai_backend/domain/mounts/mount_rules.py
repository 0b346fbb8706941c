"""Computes the mounts of one user's task from the rows of the mounts table.

Rows of the user's groups are applied before the user's own, and rows without a condition before those with one; a later
row overrides an earlier one with the same mount path. Within each of these levels, removals are applied before
additions. If two rows of a level add the same mount path, neither is used, because it is ambiguous.

A task is rejected if a value that a row needs may not become part of a path (task names are free text). If only the row
were skipped, a user could choose a task name to disable a removal or a read-only mount.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hai_backend.domain.accounts.user import User
from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.mounts.condition import parse_condition
from hai_backend.domain.mounts.mount import Mount, MountAction, MountKind, MountRow
from hai_backend.domain.mounts.paths import check_path, check_target
from hai_backend.domain.mounts.sources import check_source
from hai_backend.domain.mounts.template import parse_template
from hai_backend.domain.mounts.variables import Facts, Problem, facts_of
from hai_backend.domain.task import Task

EVERYBODY = "public"

Mounts = dict[str, Mount]  # by mount path


def resolve(
    rows: Iterable[MountRow], user: User, task: Task | None
) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return the mounts, outer directories first, and notes for the operators. Raises Invalid.

    Without a task, return the mounts of every task of the user; rows that refer to a task are skipped.
    """
    facts = facts_of(user, task)
    ranks: dict[int, list[MountRow]] = defaultdict(list)
    for row in rows:
        if _applies(row, user, task) and _meets_conditions(row, facts):
            ranks[_rank(row, user)].append(row)
    mounts: Mounts = {}
    notes: list[str] = []
    for rank in sorted(ranks, reverse=True):
        _remove(ranks[rank], facts, mounts)
        notes += _add(ranks[rank], facts, mounts)
    return tuple(mounts[path] for path in sorted(mounts)), tuple(notes)


def _rank(row: MountRow, user: User) -> int:
    """Return 3 for a row of a group, 1 for a row of the user, and one less for a row with conditions."""
    return (1 if user.name in row.owners else 3) - bool(row.conditions)


def _applies(row: MountRow, user: User, task: Task | None) -> bool:
    owners = {user.role.value, EVERYBODY, *user.groups, user.name}
    if owners.isdisjoint(row.owners):
        return False
    return task is None or not row.mount_code or bool(row.mount_code & task.spec.options.mount_code)


def _meets_conditions(row: MountRow, facts: Facts) -> bool:
    try:
        conditions = [parse_condition(text) for text in row.conditions]
        placeholders = list(_placeholders(row))
    except Problem as problem:  # the row was written without validation
        raise _invalid_row(row, str(problem)) from problem
    if any(name not in facts for c in conditions for name in c.mentions):
        return False
    if any(facts.get(name) is None for name in placeholders):
        return False
    return all(condition.holds(facts) for condition in conditions)


def _placeholders(row: MountRow) -> Iterator[str]:
    for text in (row.mount_path, row.source, *row.attributes.values()):
        yield from parse_template(text).mentions


def _remove(rows: Sequence[MountRow], facts: Facts, mounts: Mounts) -> None:
    for row in rows:
        if row.action is MountAction.REMOVE:
            path, source = (_fill(row, t, facts) for t in (row.mount_path, row.source or "*"))
            for mount in list(mounts.values()):
                if _matches(path, mount.mount_path) and _matches(source, mount.source):
                    del mounts[mount.mount_path]


def _matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern. Values contain no `*`, so a `*` at the end is a wildcard of the row."""
    if pattern.endswith("*"):
        return text.startswith(pattern[:-1])
    return text == (pattern.rstrip("/") or pattern)


def _add(rows: Sequence[MountRow], facts: Facts, mounts: Mounts) -> Iterator[str]:
    added: dict[str, list[tuple[MountRow, Mount]]] = defaultdict(list)
    for row in rows:
        if row.action is MountAction.ADD:
            mount = _mount(row, facts)
            added[mount.mount_path].append((row, mount))
    for path, found in added.items():
        if len(found) == 1:
            mounts[path] = found[0][1]
        else:
            ids = ", ".join(str(row.id) for row, _ in found)
            yield f"rows {ids} all mount {path}: none of them is used; remove all but one"


def _mount(row: MountRow, facts: Facts) -> Mount:
    try:
        path = check_path(_fill(row, row.mount_path, facts))
        check_target(path, shared_memory=row.kind is MountKind.TMPFS)
        source = check_source(row.kind, _fill(row, row.source, facts))
    except Problem as problem:
        raise _invalid_row(row, str(problem)) from problem
    attributes = {key: _fill(row, text, facts) for key, text in row.attributes.items()}
    fixed = row.read_only or row.kind is MountKind.CONFIG_MAP
    return Mount(path, source, row.kind, row.host_type, attributes, fixed)


def _fill(row: MountRow, text: str, facts: Facts) -> str:
    try:
        return parse_template(text).fill(facts)
    except ValueError as error:
        raise _invalid_row(row, str(error)) from error


def _invalid_row(row: MountRow, why: str) -> Invalid:
    message = f"the storage of row {row.id} cannot be mounted: {why}"
    return Invalid((Violation("", message),), reason="BAD_MOUNT")
