"""Tokens for the programs in dev containers: one per run, which acts as the owner and is deleted with the run.

Everybody who can enter a container can read its token: operators, and users with whom it is shared. So the token has at
most the permissions of a normal user, even if the owner is an admin.
"""

from __future__ import annotations

from collections.abc import Iterable

from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import TokenScope
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Task, TaskState

_DAYS = 30


async def make(directory: Directory, task: Task, now: float) -> str:
    """Create a token and return its secret; empty for a task that is not a dev container."""
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
    """Delete the tokens of all runs of a task that does not run any more."""
    begin = f"dev container {task.id}, run "
    for token in directory.tokens_of(task.user):
        if token.scope is TokenScope.CONTAINER and token.description.startswith(begin):
            await directory.delete_token(token.id)


async def sweep(directory: Directory, unfinished: Iterable[Task]) -> None:
    """Delete the tokens of ended runs when a server starts: the previous server may have been killed before it did."""
    runs = {_name(task) for task in unfinished if task.state is TaskState.RUNNING}
    for token in directory.tokens_with(TokenScope.CONTAINER):
        if token.description not in runs:
            await directory.delete_token(token.id)


def _name(task: Task) -> str:
    return f"dev container {task.id}, run {task.run.number if task.run else 0}"
