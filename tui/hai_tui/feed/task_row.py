"""Fields of a task that lists read ten thousand times for each key press, as plain values.

They are read once per version of a task, because access to a protobuf field costs ten times as much. This module does
not import protobuf, because the app paints its first screen before protobuf is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task

_RUNNING = 2  # TASK_STATE_RUNNING
_STATUS_CACHE: dict[tuple[int, int, bool, int], str] = {}


class TaskRow:
    """The fields of one version of a task by which lists filter and sort."""

    __slots__ = ("created", "id", "name", "searched_text", "status", "tags", "task", "user")

    def __init__(self, task: Task) -> None:
        self.id = task.id
        self.task = task  # holds the fields that lists read less often
        self.status = cached_status(task)
        self.user = task.user
        self.tags = tuple(task.tags)
        self.name = task.name.lower()
        self.created = task.create_time.seconds
        self.searched_text = "\n".join((self.name, self.user, *self.tags, str(self.id))).lower()


def cached_status(task: Task) -> str:
    """Return what `views.tasks.status` returns, from a cache."""
    state = task.state
    key = (state, task.outcome, task.held, task.run.state if state == _RUNNING else 0)
    cached = _STATUS_CACHE.get(key)
    if cached is None:
        from hai_tui.views.tasks import status

        cached = _STATUS_CACHE[key] = status(task)
    return cached
