"""Memory and SQL agree on every filter, order and page: random tasks, random queries."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.domain.accounts.user import User
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import OptionsSpec, ProgramSpec, ResourceSpec, TaskSpec, TaskType
from hai_backend.domain.task import Outcome, Task, TaskState
from hai_backend.store.base import ORDERS, Store, TaskFilter, TaskQuery
from hai_backend.store.connect import open_store

USERS = ("ann", "bob", "Ann")
USER_GROUPS = ("g1", "g2")
NODE_GROUPS = ("default", "big")
TAGS = ("a", "b", "c")
NAMES = st.text("ab*?[]%_\\é", min_size=1, max_size=4)
AWAITED = (1, 2, 12)
TIMES = st.sampled_from((0.0, 0.1, 0.1 + 0.2, 1763723720.123457))


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    spec = TaskSpec(
        draw(NAMES),
        ProgramSpec("a.py"),
        draw(st.sampled_from(TaskType)),
        resource=ResourceSpec(group=draw(st.sampled_from(NODE_GROUPS))),
        options=OptionsSpec(shared_in_group=draw(st.booleans())),
    )
    return Task(
        id=0,
        user=draw(st.sampled_from(USERS)),
        spec=spec,
        state=draw(st.sampled_from(TaskState)),
        priority=draw(st.sampled_from(Priority)),
        created_at=draw(TIMES),
        tags=tuple(draw(st.lists(st.sampled_from(TAGS), max_size=3))),
        starred=draw(st.booleans()),
        outcome=draw(st.none() | st.sampled_from(Outcome)),
        awaited=tuple(draw(st.lists(st.sampled_from(AWAITED), max_size=3, unique=True))),
    )


def some(values: Any) -> st.SearchStrategy[frozenset[object]]:
    return st.just(frozenset()) | st.frozensets(st.sampled_from(values), max_size=2)


FILTERS = st.builds(
    TaskFilter,
    ids=some(range(1, 12)),
    states=some(TaskState),
    outcomes=some(Outcome),
    users=some(USERS),
    groups=some(NODE_GROUPS),
    names=st.just(()) | st.lists(NAMES, max_size=2).map(tuple),
    tags=some(TAGS),
    task_types=some(TaskType),
    awaiting=some(AWAITED),
    not_states=some(TaskState),
    not_tags=some(TAGS),
    not_users=some(USERS),
    not_names=st.just(()) | st.lists(NAMES, max_size=2).map(tuple),
    starred=st.none() | st.booleans(),
    priority_min=st.none() | st.sampled_from([-1, 0, 7, 50]),
    priority_max=st.none() | st.sampled_from([-1, 0, 7, 50]),
    created_after=st.none() | TIMES,
    created_before=st.none() | TIMES,
    visible_to=st.none() | st.sampled_from(USERS),
    visible_groups=some(USER_GROUPS),
)
QUERIES = st.builds(
    TaskQuery,
    filter=st.just(TaskFilter()) | FILTERS,
    order_by=st.sampled_from(ORDERS),
    descending=st.booleans(),
    page_size=st.integers(1, 5),
    count=st.booleans(),
)


async def answers(url: str, made: list[Task], queries: list[TaskQuery]) -> list[object]:
    store = open_store(url)
    await store.open()
    await store.save_user(User("ann", groups=("g1",)))
    await store.save_user(User("bob", groups=("g1", "g2")))
    found: list[object] = []
    for task in made:
        created = await asyncio.gather(store.create_task(task, []), return_exceptions=True)
        found += [str(c) if isinstance(c, Exception) else c for c in created]
    for query in queries:
        found += await pages(store, query)
    await store.close()
    return found


async def pages(store: Store, query: TaskQuery) -> list[object]:
    found: list[object] = []
    while True:
        page = await store.find_tasks(query)
        found.append(page)
        if not page.next_page_token:
            return found
        query = replace(query, page_token=page.next_page_token)


@settings(max_examples=30, deadline=None)
@given(st.lists(tasks(), max_size=12), st.lists(QUERIES, min_size=1, max_size=8))
def test_memory_and_sqlite_agree(
    migrated_file: Path, made: list[Task], queries: list[TaskQuery]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = shutil.copy(migrated_file, Path(folder) / "hai.db")
        in_file = asyncio.run(answers(f"sqlite:///{path}", made, queries))
    assert asyncio.run(answers("memory:", made, queries)) == in_file
