"""TaskFilter as SQL conditions. matching.py says the same over values; one suite holds both to the same answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum

from sqlalchemy import ColumnElement, and_, func, or_, select

from hai_backend.domain.task import TaskState
from hai_backend.store.base import TaskFilter
from hai_backend.store.tables.accounts import MEMBERS
from hai_backend.store.tables.tasks import TAGS, TASKS, UNFINISHED

_C = TASKS.c


def conditions(wanted: TaskFilter, dialect: str) -> list[ColumnElement[bool]]:
    """Conditions to be ANDed."""
    return [
        *_unfinished(wanted),
        *_among(wanted, dialect),
        *_not_excluded(wanted, dialect),
        *_within(wanted),
        *_visible(wanted),
    ]


def _unfinished(wanted: TaskFilter) -> Iterator[ColumnElement[bool]]:
    # Says nothing new, but in the words of the partial indexes, so that they can serve.
    only = wanted.states and TaskState.FINISHED not in wanted.states
    if only or TaskState.FINISHED in wanted.not_states:
        yield UNFINISHED


def _among(wanted: TaskFilter, dialect: str) -> Iterator[ColumnElement[bool]]:
    terms = (
        (_C.id, wanted.ids),
        (_C.state, wanted.states),
        (_C.outcome, wanted.outcomes),
        (_C.user_name, wanted.users),
        (_C.group_name, wanted.groups),
        (_C.task_type, wanted.task_types),
    )
    for column, values in terms:
        if values:
            yield column.in_(_plain(values))
    if wanted.names:
        yield _named(wanted.names, dialect)
    if wanted.tags:
        yield _tagged(wanted.tags)
    if wanted.awaiting:
        yield _awaits(wanted.awaiting)


def _not_excluded(wanted: TaskFilter, dialect: str) -> Iterator[ColumnElement[bool]]:
    if wanted.not_states:
        yield _C.state.not_in(_plain(wanted.not_states))
    if wanted.not_users:
        yield _C.user_name.not_in(_plain(wanted.not_users))
    if wanted.not_names:
        yield ~_named(wanted.not_names, dialect)
    if wanted.not_tags:
        yield ~_tagged(wanted.not_tags)


def _within(wanted: TaskFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.starred is not None:
        yield _C.starred.is_(wanted.starred)
    if wanted.priority_min is not None:
        yield _C.priority >= wanted.priority_min
    if wanted.priority_max is not None:
        yield _C.priority <= wanted.priority_max
    if wanted.created_after is not None:
        yield _C.created_at > wanted.created_after
    if wanted.created_before is not None:
        yield _C.created_at < wanted.created_before


def _visible(wanted: TaskFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.visible_to is None:
        return
    groups = MEMBERS.c.group_name.in_(sorted(wanted.visible_groups))
    sharers = select(MEMBERS.c.user_name).where(groups)
    yield or_(
        _C.user_name == wanted.visible_to,
        and_(_C.shared, _C.user_name.in_(sharers)),
    )


def _tagged(tags: Collection[str]) -> ColumnElement[bool]:
    return _C.id.in_(select(TAGS.c.task_id).where(TAGS.c.tag.in_(sorted(tags))))


def _awaits(ids: Collection[int]) -> ColumnElement[bool]:
    """Who waits has not ended, and few do: their lists are looked through as the text that they are, `[12, 13]`."""
    told = func.replace(func.replace(_C.awaited, "[", ", "), "]", ", ")
    return and_(
        UNFINISHED, _C.awaited != "[]", or_(*(told.contains(f" {id},") for id in sorted(ids)))
    )


def _named(patterns: Collection[str], dialect: str) -> ColumnElement[bool]:
    exact = [p for p in patterns if "*" not in p]
    like = [_like(p, dialect) for p in patterns if "*" in p]
    return or_(_C.name.in_(exact), *like) if exact else or_(*like)


def _like(pattern: str, dialect: str) -> ColumnElement[bool]:
    # LIKE ignores case in SQLite, so GLOB there. Every sign but * is taken literally.
    if dialect == "sqlite":
        globbed = pattern.replace("[", "[[]").replace("?", "[?]")
        return _C.name.bool_op("GLOB")(globbed)
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return _C.name.like(escaped.replace("*", "%"), escape="\\")


def _plain(values: Collection[object]) -> list[object]:
    plain = [v.value if isinstance(v, Enum) else v for v in values]
    return sorted(plain, key=str)
