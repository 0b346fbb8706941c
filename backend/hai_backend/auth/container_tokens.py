"""Makes and deletes the tokens of dev containers. The programs of each run get one that acts as their owner.

Everybody who can enter a container can read its token: operators, and users with whom it is shared. Therefore the token
has at most the permissions of a normal user, even if the owner is an admin.
"""

from __future__ import annotations

from collections.abc import Iterable

from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import TokenScope
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Task, TaskState

_DAYS = 30


async def make_token(directory: Directory, task: Task, now: float) -> str:
    """Create a token and return its secret. Return an empty text for a task that is not a dev container."""
    if task.spec.task_type is not TaskType.JUPYTER:
        return ""
    expires_at = now + _DAYS * 86_400
    _, secret = await directory.create_token(
        task.user, TokenScope.CONTAINER, now, description=_describe(task), expires_at=expires_at
    )
    return secret


def has_run_ended(before: Task | None, task: Task) -> bool:
    """Say whether a change of a task has ended a run of a dev container."""
    was_running = before is not None and before.state is TaskState.RUNNING
    is_container = task.spec.task_type is TaskType.JUPYTER
    return is_container and was_running and task.state is not TaskState.RUNNING


async def delete_tokens(directory: Directory, task: Task) -> None:
    """Delete the tokens of all runs of a task, which must not be running."""
    prefix = f"dev container {task.id}, run "
    for token in directory.tokens_of(task.user):
        if token.scope is TokenScope.CONTAINER and token.description.startswith(prefix):
            await directory.delete_token(token.id)


async def delete_stale_tokens(directory: Directory, unfinished: Iterable[Task]) -> None:
    """Delete the tokens of ended runs. Needed after a start, because the previous server may have been killed."""
    running = {_describe(task) for task in unfinished if task.state is TaskState.RUNNING}
    for token in directory.tokens_with(TokenScope.CONTAINER):
        if token.description not in running:
            await directory.delete_token(token.id)


def _describe(task: Task) -> str:
    return f"dev container {task.id}, run {task.run.number if task.run else 0}"
