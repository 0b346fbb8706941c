"""The memory store and SQLite return the same pages for random tasks and queries."""

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
def random_tasks(draw: st.DrawFn) -> Task:
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


def subsets(values: Any) -> st.SearchStrategy[frozenset[object]]:
    return st.just(frozenset()) | st.frozensets(st.sampled_from(values), max_size=2)


FILTERS = st.builds(
    TaskFilter,
    ids=subsets(range(1, 12)),
    states=subsets(TaskState),
    outcomes=subsets(Outcome),
    users=subsets(USERS),
    groups=subsets(NODE_GROUPS),
    names=st.just(()) | st.lists(NAMES, max_size=2).map(tuple),
    tags=subsets(TAGS),
    task_types=subsets(TaskType),
    awaiting=subsets(AWAITED),
    not_states=subsets(TaskState),
    not_tags=subsets(TAGS),
    not_users=subsets(USERS),
    not_names=st.just(()) | st.lists(NAMES, max_size=2).map(tuple),
    starred=st.none() | st.booleans(),
    priority_min=st.none() | st.sampled_from([-1, 0, 7, 50]),
    priority_max=st.none() | st.sampled_from([-1, 0, 7, 50]),
    created_after=st.none() | TIMES,
    created_before=st.none() | TIMES,
    visible_to=st.none() | st.sampled_from(USERS),
    visible_groups=subsets(USER_GROUPS),
)
QUERIES = st.builds(
    TaskQuery,
    filter=st.just(TaskFilter()) | FILTERS,
    order_by=st.sampled_from(ORDERS),
    descending=st.booleans(),
    page_size=st.integers(1, 5),
    count=st.booleans(),
)


async def run_queries(url: str, tasks: list[Task], queries: list[TaskQuery]) -> list[object]:
    store = open_store(url)
    await store.open()
    await store.save_user(User("ann", groups=("g1",)))
    await store.save_user(User("bob", groups=("g1", "g2")))
    results: list[object] = []
    for task in tasks:
        [result] = await asyncio.gather(store.create_task(task, []), return_exceptions=True)
        results.append(str(result) if isinstance(result, Exception) else result)
    for query in queries:
        results += await read_pages(store, query)
    await store.close()
    return results


async def read_pages(store: Store, query: TaskQuery) -> list[object]:
    pages: list[object] = []
    while True:
        page = await store.find_tasks(query)
        pages.append(page)
        if not page.next_page_token:
            return pages
        query = replace(query, page_token=page.next_page_token)


@settings(max_examples=30, deadline=None)
@given(st.lists(random_tasks(), max_size=12), st.lists(QUERIES, min_size=1, max_size=8))
def test_memory_and_sqlite_agree(
    migrated_file: Path, tasks: list[Task], queries: list[TaskQuery]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = shutil.copy(migrated_file, Path(directory) / "hai.db")
        sqlite_results = asyncio.run(run_queries(f"sqlite:///{path}", tasks, queries))
    assert asyncio.run(run_queries("memory:", tasks, queries)) == sqlite_results
