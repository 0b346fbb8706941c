"""Translates a TaskFilter to SQL conditions. store/matching.py evaluates the same filters in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum

from sqlalchemy import ColumnElement, and_, func, or_, select

from hai_backend.domain.task import TaskState
from hai_backend.store.base import TaskFilter
from hai_backend.store.tables.accounts import MEMBERS
from hai_backend.store.tables.tasks import TAGS, TASKS, UNFINISHED

_C = TASKS.c


def conditions(task_filter: TaskFilter, dialect: str) -> list[ColumnElement[bool]]:
    """Return the conditions. A task matches if all of them are true."""
    return [
        *_unfinished(task_filter),
        *_matching_values(task_filter, dialect),
        *_not_excluded(task_filter, dialect),
        *_in_ranges(task_filter),
        *_visible(task_filter),
    ]


def _unfinished(task_filter: TaskFilter) -> Iterator[ColumnElement[bool]]:
    # This condition is redundant, but a database uses a partial index only if the query repeats the index's condition.
    without_finished = task_filter.states and TaskState.FINISHED not in task_filter.states
    if without_finished or TaskState.FINISHED in task_filter.not_states:
        yield UNFINISHED


def _matching_values(task_filter: TaskFilter, dialect: str) -> Iterator[ColumnElement[bool]]:
    terms = (
        (_C.id, task_filter.ids),
        (_C.state, task_filter.states),
        (_C.outcome, task_filter.outcomes),
        (_C.user_name, task_filter.users),
        (_C.group_name, task_filter.groups),
        (_C.task_type, task_filter.task_types),
    )
    for column, values in terms:
        if values:
            yield column.in_(_column_values(values))
    if task_filter.names:
        yield _matches_any(task_filter.names, dialect)
    if task_filter.tags:
        yield _has_any_tag(task_filter.tags)
    if task_filter.awaiting:
        yield _awaits(task_filter.awaiting)


def _not_excluded(task_filter: TaskFilter, dialect: str) -> Iterator[ColumnElement[bool]]:
    if task_filter.not_states:
        yield _C.state.not_in(_column_values(task_filter.not_states))
    if task_filter.not_users:
        yield _C.user_name.not_in(_column_values(task_filter.not_users))
    if task_filter.not_names:
        yield ~_matches_any(task_filter.not_names, dialect)
    if task_filter.not_tags:
        yield ~_has_any_tag(task_filter.not_tags)


def _in_ranges(task_filter: TaskFilter) -> Iterator[ColumnElement[bool]]:
    if task_filter.starred is not None:
        yield _C.starred.is_(task_filter.starred)
    if task_filter.priority_min is not None:
        yield _C.priority >= task_filter.priority_min
    if task_filter.priority_max is not None:
        yield _C.priority <= task_filter.priority_max
    if task_filter.created_after is not None:
        yield _C.created_at > task_filter.created_after
    if task_filter.created_before is not None:
        yield _C.created_at < task_filter.created_before


def _visible(task_filter: TaskFilter) -> Iterator[ColumnElement[bool]]:
    if task_filter.visible_to is None:
        return
    groups = MEMBERS.c.group_name.in_(sorted(task_filter.visible_groups))
    sharing_users = select(MEMBERS.c.user_name).where(groups)
    yield or_(
        _C.user_name == task_filter.visible_to,
        and_(_C.shared, _C.user_name.in_(sharing_users)),
    )


def _has_any_tag(tags: Collection[str]) -> ColumnElement[bool]:
    return _C.id.in_(select(TAGS.c.task_id).where(TAGS.c.tag.in_(sorted(tags))))


def _awaits(ids: Collection[int]) -> ColumnElement[bool]:
    """Search the JSON texts of the lists, such as `[12, 13]`. Few unfinished tasks have such a list."""
    listed = func.replace(func.replace(_C.awaited, "[", ", "), "]", ", ")
    awaits_any = or_(*(listed.contains(f" {id},") for id in sorted(ids)))
    return and_(UNFINISHED, _C.awaited != "[]", awaits_any)


def _matches_any(patterns: Collection[str], dialect: str) -> ColumnElement[bool]:
    exact = [p for p in patterns if "*" not in p]
    wildcards = [_matches_pattern(p, dialect) for p in patterns if "*" in p]
    return or_(_C.name.in_(exact), *wildcards) if exact else or_(*wildcards)


def _matches_pattern(pattern: str, dialect: str) -> ColumnElement[bool]:
    # SQLite's LIKE ignores case, so GLOB is used there. Every character except * is literal.
    if dialect == "sqlite":
        escaped = pattern.replace("[", "[[]").replace("?", "[?]")
        return _C.name.bool_op("GLOB")(escaped)
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return _C.name.like(escaped.replace("*", "%"), escape="\\")


def _column_values(values: Collection[object]) -> list[object]:
    plain = [v.value if isinstance(v, Enum) else v for v in values]
    return sorted(plain, key=str)
