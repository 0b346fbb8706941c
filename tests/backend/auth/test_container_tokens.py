"""Tokens of dev containers are deleted with their runs. Other tokens are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.auth import container_tokens
from hai_backend.auth.directory import Directory
from hai_backend.domain.accounts.user import TokenScope, User
from hai_backend.domain.errors import Unauthenticated
from hai_backend.domain.spec import TaskType
from hai_backend.domain.task import Task, TaskState
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_task

NOW = 1000.0


@pytest.fixture
async def directory() -> Directory:
    made = Directory(MemoryStore())
    await made.create_user(User("ada"))
    return made


def lab(number: int) -> Task:
    task = a_task(number, user="ada")
    return replace(task, spec=replace(task.spec, task_type=TaskType.JUPYTER))


async def test_tokens_of_all_runs_are_deleted(directory: Directory) -> None:
    for _ in range(20):
        secret = await container_tokens.make_token(directory, lab(1), NOW)
        assert directory.identify(secret, NOW).scope is TokenScope.CONTAINER
        await container_tokens.delete_tokens(directory, lab(1))
        with pytest.raises(Unauthenticated):
            directory.identify(secret, NOW)
    assert directory.tokens_of("ada") == ()


async def test_other_tokens_are_kept_whatever_their_description(directory: Directory) -> None:
    await container_tokens.make_token(directory, lab(1), NOW)
    await container_tokens.make_token(directory, lab(11), NOW)
    called = "dev container 1, run 1"
    await directory.create_token("ada", TokenScope.ALL, NOW, description=called)
    await container_tokens.delete_tokens(directory, lab(1))
    left = [(token.scope, token.description) for token in directory.tokens_of("ada")]
    assert left == [
        (TokenScope.ALL, called),
        (TokenScope.CONTAINER, "dev container 11, run 0"),
    ]


async def test_tokens_that_a_killed_server_left_are_deleted(directory: Directory) -> None:
    """A server may be killed between the end of a run and the deletion of its token."""
    begun = replace(lab(1), state=TaskState.RUNNING)
    secrets = [await container_tokens.make_token(directory, task, NOW) for task in (begun, lab(2))]
    own = (await directory.create_token("ada", TokenScope.ALL, NOW))[1]
    await container_tokens.delete_stale_tokens(directory, [begun, lab(2)])
    assert directory.identify(secrets[0], NOW).user.name == "ada"
    assert directory.identify(own, NOW).user.name == "ada"
    with pytest.raises(Unauthenticated):
        directory.identify(secrets[1], NOW)
