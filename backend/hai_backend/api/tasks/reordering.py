"""Reordering one's own tasks: which custom ranks put a task before another. Pure.

The order is that of the scheduler: custom rank, then first submission, then id. Tasks that share a rank (all have 0 at
first) are told apart by submission, so a task is put between them by moving its neighbours on one side as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from hai_backend.domain.errors import Conflict
from hai_backend.domain.task import Task

_MOST = 1000  # neighbours that one move may shift


def siblings(task: Task, tasks: Iterable[Task]) -> list[Task]:
    """The other unfinished tasks of the same owner, group and level, in order."""
    key = _key(task)
    return sorted((t for t in tasks if t.id != task.id and _key(t) == key), key=_order)


def new_ranks(task: Task, others: list[Task], before: int) -> list[tuple[int, float]]:
    """(id, custom rank) to be set in this order; `before` 0: before all. Raises Conflict."""
    place = _place(task, others, before)
    front = _shifted([t.custom_rank for t in others[:place]][::-1], _rank_before(others, place))
    back = _shifted([-t.custom_rank for t in others[place:]], -_rank_after(others, place))
    if len(front) <= len(back):
        changed = [(others[place - i].id, rank) for i, rank in enumerate(front) if i]
        rank = front[0]
    else:
        changed = [(others[place + i - 1].id, -rank) for i, rank in enumerate(back) if i]
        rank = -back[0]
    if len(changed) > _MOST:
        raise Conflict(
            f"that would shift {len(changed)} tasks; move task {task.id} before the first one instead"
        )
    return [*reversed(changed), (task.id, rank)]


def _place(task: Task, others: list[Task], before: int) -> int:
    if before == 0:
        return 0
    for place, other in enumerate(others):
        if other.id == before:
            return place
    raise Conflict(
        f"task {before} is not another waiting or running task of {task.user} in group {task.spec.resource.group} "
        f"at {task.priority.name}, so task {task.id} can not be put before it",
        reason="NOT_COMPARABLE",
    )


def _rank_before(others: list[Task], place: int) -> float:
    """A rank below that of others[place], and above that of the one in front if there is room."""
    if not others:
        return 0.0
    low, high = (others[place - 1].custom_rank if place else None), others[place].custom_rank
    middle = high - 1.0 if low is None or low >= high else (low + high) / 2
    return middle if middle < high else high - 1.0


def _rank_after(others: list[Task], place: int) -> float:
    """A rank above that of the one in front."""
    return others[place - 1].custom_rank + 1.0 if place else _rank_before(others, place)


def _shifted(neighbours: list[float], rank: float) -> list[float]:
    """`rank`, and new ranks for the neighbours on its lower side, nearest first, as far as they must give way."""
    ranks = [rank]
    for known in neighbours:
        if known < ranks[-1]:
            break
        ranks.append(ranks[-1] - 1.0)
    return ranks


def _key(task: Task) -> tuple[str, str, int]:
    return task.user, task.spec.resource.group, task.priority


def _order(task: Task) -> tuple[float, float, int]:
    return task.custom_rank, task.created_at, task.id
