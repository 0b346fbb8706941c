"""Computes the custom ranks that put a task of a user before another one. Pure.

The scheduler orders by custom rank, then first submission, then id. All custom ranks are 0 at first. To put a task
between two tasks of the same rank, the neighbours on one side must get new ranks, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task

_MAX_SHIFTED = 1000  # neighbours that one move may shift


def find_siblings(task: Task, tasks: Iterable[Task]) -> list[Task]:
    """Return the other unfinished tasks of the same owner, group and level, in order."""
    key = _queue_key(task)
    return sorted((t for t in tasks if t.id != task.id and _queue_key(t) == key), key=_sort_key)


def new_ranks(task: Task, others: list[Task], before: int) -> list[tuple[int, float]]:
    """Return the ids and custom ranks to set, in this order. `before` is a task id, or 0 to become the first.

    Raises Conflict.
    """
    index = _find_index(task, others, before)
    front = _shift([t.custom_rank for t in others[:index]][::-1], _rank_before(others, index))
    back = _shift([-t.custom_rank for t in others[index:]], -_rank_after(others, index))
    if len(front) <= len(back):
        shifted = [(others[index - i].id, rank) for i, rank in enumerate(front) if i]
        own_rank = front[0]
    else:
        shifted = [(others[index + i - 1].id, -rank) for i, rank in enumerate(back) if i]
        own_rank = -back[0]
    if len(shifted) > _MAX_SHIFTED:
        raise Conflict(
            f"that would shift {len(shifted)} tasks; move task {task.id} before the first one instead"
        )
    return [*reversed(shifted), (task.id, own_rank)]


def _find_index(task: Task, others: list[Task], before: int) -> int:
    if before == 0:
        return 0
    for index, other in enumerate(others):
        if other.id == before:
            return index
    raise Conflict(
        f"task {before} is not another waiting or running task of {task.user} in group {task.spec.resource.group} "
        f"at {task.priority.name}, so task {task.id} cannot be put before it",
        reason="NOT_COMPARABLE",
    )


def _rank_before(others: list[Task], index: int) -> float:
    """Return a rank below that of `others[index]`, and above that of the previous task if there is a rank between."""
    if not others:
        return 0.0
    low, high = (others[index - 1].custom_rank if index else None), others[index].custom_rank
    middle = high - 1.0 if low is None or low >= high else (low + high) / 2
    return middle if middle < high else high - 1.0


def _rank_after(others: list[Task], index: int) -> float:
    """Return a rank above that of the task before `others[index]`."""
    return others[index - 1].custom_rank + 1.0 if index else _rank_before(others, index)


def _shift(neighbour_ranks: list[float], rank: float) -> list[float]:
    """Return `rank`, followed by lower ranks for the neighbours that are not below it. The nearest comes first."""
    ranks = [rank]
    for neighbour_rank in neighbour_ranks:
        if neighbour_rank < ranks[-1]:
            break
        ranks.append(ranks[-1] - 1.0)
    return ranks


def _queue_key(task: Task) -> tuple[str, str, int]:
    return task.user, task.spec.resource.group, task.priority


def _sort_key(task: Task) -> tuple[float, float, int]:
    return task.custom_rank, task.created_at, task.id
