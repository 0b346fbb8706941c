"""The saves of the last finished task of a user and a name are known, and the store is asked once for each user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hai_backend.controllers.tasks import save_history
from hai_backend.controllers.tasks.save_history import LastSave, SaveHistory
from hai_backend.domain.progress import Progress
from hai_backend.domain.task import Task, TaskState
from hai_backend.store.base import TaskPage, TaskQuery
from hai_backend.store.memory.store import MemoryStore
from tests.support.builders import a_spec, a_task


class Counting(MemoryStore):
    """A store that counts queries."""

    queries = 0

    async def find_tasks(self, query: TaskQuery) -> TaskPage:
        self.queries += 1
        return await super().find_tasks(query)


def finished(id: int, name: str, seconds: float | None, user: str = "ada") -> Task:
    task = replace(a_task(), id=id, user=user, spec=a_spec(name), state=TaskState.FINISHED)
    return replace(task, progress=Progress(longest_save=seconds))


async def made(*tasks: Task) -> tuple[Counting, SaveHistory]:
    store = Counting()
    for task in tasks:
        await store.create_task(replace(task, id=0), (), "")
    return store, SaveHistory(store)


async def test_the_newest_task_that_has_saved_counts_and_the_store_is_asked_once() -> None:
    store, history = await made(
        finished(1, "big", 9.0),
        finished(2, "big", 4.0),
        finished(3, "big", None),
        finished(4, "big", 7.0, user="bob"),
        replace(finished(5, "open", 8.0), state=TaskState.SUSPENDED),
    )
    assert await history.last("ada", "big") == LastSave(2, 4.0)
    assert await history.last("ada", "open") is None
    assert await history.last("ada", "other") is None
    assert store.queries == 1
    assert await history.last("bob", "big") == LastSave(4, 7.0)


async def test_tasks_that_finish_later_are_remembered_without_a_query() -> None:
    store, history = await made()
    history.changed(finished(1, "big", 9.0))  # the store tells it later
    assert await history.last("ada", "big") is None
    for id, seconds in ((7, 3.0), (6, 9.0)):
        history.changed(finished(id, "big", seconds))
    history.changed(replace(finished(8, "big", 1.0), state=TaskState.RUNNING))
    assert await history.last("ada", "big") == LastSave(7, 3.0)
    assert store.queries == 1


async def test_the_oldest_names_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_history, "_MAX_TASKS", 2)
    _, history = await made()
    await history.last("ada", "a")
    for id, name in enumerate(("a", "b", "a", "c"), 1):
        history.changed(finished(id, name, 1.0))
    found = [await history.last("ada", name) for name in ("a", "b", "c")]
    assert found == [LastSave(3, 1.0), None, LastSave(4, 1.0)]
