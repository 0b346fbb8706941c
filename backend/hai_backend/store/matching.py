"""Evaluates a TaskFilter for tasks in memory: for the memory store and for streams of changes.

sql/filters.py translates the same filters to SQL. tests/backend/store/test_agreement.py compares the results.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hai_backend.domain.task import Task, TaskState
from hai_backend.store.base import TaskFilter


def matches(
    task: Task, task_filter: TaskFilter, user_groups: Mapping[str, Collection[str]]
) -> bool:
    """Return whether a task matches. `user_groups` maps users to their groups, for `visible_groups`."""
    return (
        _matches_values(task, task_filter)
        and not _is_excluded(task, task_filter)
        and _is_in_ranges(task, task_filter)
        and _is_visible(task, task_filter, user_groups)
    )


def _matches_values(task: Task, task_filter: TaskFilter) -> bool:
    f = task_filter
    return (
        (not f.ids or task.id in f.ids)
        and (not f.states or task.state in f.states)
        and (not f.outcomes or task.outcome in f.outcomes)
        and (not f.users or task.user in f.users)
        and (not f.groups or task.spec.resource.group in f.groups)
        and (not f.names or _matches_any(task.spec.name, f.names))
        and (not f.tags or not f.tags.isdisjoint(task.tags))
        and (not f.task_types or task.spec.task_type in f.task_types)
        and (not f.awaiting or _awaits(task, f.awaiting))
    )


def _is_excluded(task: Task, task_filter: TaskFilter) -> bool:
    return (
        task.state in task_filter.not_states
        or task.user in task_filter.not_users
        or not task_filter.not_tags.isdisjoint(task.tags)
        or _matches_any(task.spec.name, task_filter.not_names)
    )


def _is_in_ranges(task: Task, task_filter: TaskFilter) -> bool:
    f = task_filter
    return (
        (f.starred is None or task.starred == f.starred)
        and (f.priority_min is None or task.priority >= f.priority_min)
        and (f.priority_max is None or task.priority <= f.priority_max)
        and (f.created_after is None or task.created_at > f.created_after)
        and (f.created_before is None or task.created_at < f.created_before)
    )


def _is_visible(
    task: Task, task_filter: TaskFilter, user_groups: Mapping[str, Collection[str]]
) -> bool:
    if task_filter.visible_to is None or task.user == task_filter.visible_to:
        return True
    groups = user_groups.get(task.user, ())
    return task.spec.options.shared_in_group and not task_filter.visible_groups.isdisjoint(groups)


def _awaits(task: Task, ids: Collection[int]) -> bool:
    return task.state is not TaskState.FINISHED and any(id in ids for id in task.awaited)


def _matches_any(name: str, patterns: Collection[str]) -> bool:
    return any(matches_pattern(name, pattern) for pattern in patterns)


def matches_pattern(name: str, pattern: str) -> bool:
    """Return whether a pattern, in which * matches any text, matches the complete name.

    Unlike a regular expression, this function is fast for every pattern that a user may send.
    """
    first, *others = pattern.split("*")
    if not others:
        return name == first
    *inner, last = others
    position, end = len(first), len(name) - len(last)
    if position > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in inner:
        found = name.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True
