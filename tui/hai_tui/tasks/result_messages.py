"""How a task stands after an action, told in the words of what was changed: `is HIGH`, `has the tags bert, sweep`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hai_tui.i18n import text

if TYPE_CHECKING:
    from hai.v1.task_pb2 import Task

ResultMessage = Callable[["Task"], str]


def status(task: Task) -> str:
    """Its state."""
    from hai_tui.views.tasks import status

    return text("stands.is", what=status(task))


def priority(task: Task) -> str:
    """Its level."""
    from hai_tui.formatting.values import priority_name

    return text("stands.is", what=priority_name(task.priority))


def tags(task: Task) -> str:
    """All its tags."""
    return text("stands.tags", tags=", ".join(task.tags)) if task.tags else text("stands.no_tags")


def star(task: Task) -> str:
    """Starred or not."""
    return text("stands.starred" if task.starred else "stands.not_starred")
