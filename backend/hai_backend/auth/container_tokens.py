"""Tokens that dev containers get of their owners: one a run, deleted with it.

Who gets into a container has its token: operators, and those with whom it is shared. So by it even an admin is a user.
"""

from __future__ import annotations

from collections.abc import Iterable

from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import TokenScope
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Task, TaskState

_DAYS = 30


async def make(directory: Directory, task: Task, now: float) -> str:
    """The secret; empty for a task that is no dev container."""
    if task.spec.task_type is not TaskType.JUPYTER:
        return ""
    ends = now + _DAYS * 86_400
    made = await directory.create_token(
        task.user, TokenScope.CONTAINER, now, description=_name(task), expires_at=ends
    )
    return made[1]


def over(before: Task | None, task: Task) -> bool:
    """Whether a run of a dev container has just ended."""
    ran = before is not None and before.state is TaskState.RUNNING
    return task.spec.task_type is TaskType.JUPYTER and ran and task.state is not TaskState.RUNNING


async def delete(directory: Directory, task: Task) -> None:
    """Those of all its runs: none of them runs any more."""
    begin = f"dev container {task.id}, run "
    for token in directory.tokens_of(task.user):
        if token.scope is TokenScope.CONTAINER and token.description.startswith(begin):
            await directory.delete_token(token.id)


async def sweep(directory: Directory, unfinished: Iterable[Task]) -> None:
    """At a server's start: those of runs that are over. The one before may have been killed before it deleted them."""
    runs = {_name(task) for task in unfinished if task.state is TaskState.RUNNING}
    for token in directory.tokens_with(TokenScope.CONTAINER):
        if token.description not in runs:
            await directory.delete_token(token.id)


def _name(task: Task) -> str:
    return f"dev container {task.id}, run {task.run.number if task.run else 0}"
