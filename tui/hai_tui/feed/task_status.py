"""The status of a task from a cache, for lists that ask for it ten thousand times at each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task

_RUNNING = 2  # TASK_STATE_RUNNING
_CACHE: dict[tuple[int, int, bool, int], str] = {}


def cached_status(task: Task) -> str:
    """The same as `views.tasks.status`, which loads protobuf; the first paint does without that."""
    state = task.state
    key = (state, task.outcome, task.held, task.run.state if state == _RUNNING else 0)
    cached = _CACHE.get(key)
    if cached is None:
        from hai_tui.views.tasks import status

        cached = _CACHE[key] = status(task)
    return cached
