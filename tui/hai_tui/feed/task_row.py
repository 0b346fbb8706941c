"""Fields of a task that filters read at each key, as plain values.

They are read once per version, because access to a protobuf field costs ten times as much.
"""

from __future__ import annotations

from hai.v1.task_pb2 import Task
from hai_tui.feed.task_status import cached_status


class TaskRow:
    """Of one version of a task."""

    __slots__ = ("created", "hay", "id", "name", "status", "tags", "task", "user")

    def __init__(self, task: Task) -> None:
        self.id = task.id
        self.task = task  # what is asked for more rarely
        self.status = cached_status(task)
        self.user = task.user
        self.tags = tuple(task.tags)
        self.name = task.name.lower()
        self.created = task.create_time.seconds
        self.hay = "\n".join((self.name, self.user, *self.tags, str(self.id))).lower()
