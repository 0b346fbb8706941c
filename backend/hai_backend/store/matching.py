"""TaskFilter as a predicate over tasks in memory: for the memory store and for streams of changes.

sql/filters.py says the same in SQL; one suite holds both to the same answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hai_backend.domain.task import Task, TaskState
from hai_backend.store.base import TaskFilter


def matches(task: Task, wanted: TaskFilter, user_groups: Mapping[str, Collection[str]]) -> bool:
    """Whether the task passes. `user_groups` has the groups of each user, for `visible_groups`."""
    return (
        _among(task, wanted)
        and _not_excluded(task, wanted)
        and _within(task, wanted)
        and _visible(task, wanted, user_groups)
    )


def _among(task: Task, wanted: TaskFilter) -> bool:
    return (
        (not wanted.ids or task.id in wanted.ids)
        and (not wanted.states or task.state in wanted.states)
        and (not wanted.outcomes or task.outcome in wanted.outcomes)
        and (not wanted.users or task.user in wanted.users)
        and (not wanted.groups or task.spec.resource.group in wanted.groups)
        and (not wanted.names or _named(task.spec.name, wanted.names))
        and (not wanted.tags or not wanted.tags.isdisjoint(task.tags))
        and (not wanted.task_types or task.spec.task_type in wanted.task_types)
        and (not wanted.awaiting or _awaits(task, wanted.awaiting))
    )


def _not_excluded(task: Task, wanted: TaskFilter) -> bool:
    return (
        task.state not in wanted.not_states
        and task.user not in wanted.not_users
        and wanted.not_tags.isdisjoint(task.tags)
        and not _named(task.spec.name, wanted.not_names)
    )


def _within(task: Task, wanted: TaskFilter) -> bool:
    return (
        (wanted.starred is None or task.starred == wanted.starred)
        and (wanted.priority_min is None or task.priority >= wanted.priority_min)
        and (wanted.priority_max is None or task.priority <= wanted.priority_max)
        and (wanted.created_after is None or task.created_at > wanted.created_after)
        and (wanted.created_before is None or task.created_at < wanted.created_before)
    )


def _visible(task: Task, wanted: TaskFilter, user_groups: Mapping[str, Collection[str]]) -> bool:
    if wanted.visible_to is None or task.user == wanted.visible_to:
        return True
    groups = user_groups.get(task.user, ())
    return task.spec.options.shared_in_group and not wanted.visible_groups.isdisjoint(groups)


def _awaits(task: Task, ids: Collection[int]) -> bool:
    return task.state is not TaskState.FINISHED and any(id in ids for id in task.awaited)


def _named(name: str, patterns: Collection[str]) -> bool:
    return any(fits(name, pattern) for pattern in patterns)


def fits(name: str, pattern: str) -> bool:
    """Whether a pattern, in which * is any text, is the whole name. No pattern takes long, as a regex of it would."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == first
    *inner, last = rest
    place, end = len(first), len(name) - len(last)
    if place > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in inner:
        found = name.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True
