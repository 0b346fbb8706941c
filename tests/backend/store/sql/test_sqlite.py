"""SQLite: a killed writer, a full disk, a second server, a newer schema, the use of indexes."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select
from sqlalchemy.dialects import sqlite

from hai_backend.domain.errors import Conflict, Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ProgramSpec, TaskSpec
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskEvent, TaskState
from hai_backend.store.base import Store, TaskFilter, TaskQuery
from hai_backend.store.connect import open_store
from hai_backend.store.sql import guards, queries
from hai_backend.store.sql.databases import sqlite as sqlite_module
from hai_backend.store.sql.filters import conditions

SUBMITTED = TaskEvent(1.0, "alice", "TaskSubmitted")


def task(name: str, padding: str = "") -> Task:
    spec = TaskSpec(name, ProgramSpec("a.py", parameters=(padding,)))
    ranks = (Rank(0, "n0"), Rank(1, "n1"))
    run = Run(1, RunState.CREATED, ranks, 1.0, Priority.NORMAL)
    return Task(0, "alice", spec, TaskState.RUNNING, Priority.NORMAL, 1.0, tags=("x",), run=run)


# A server that acknowledges each create on its standard output, until it is killed.
WRITER = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[2])
from test_sqlite import SUBMITTED, task
from hai_backend.store.connect import open_store

async def main():
    store = open_store("sqlite:///" + sys.argv[1])
    await store.open()

    async def caller(first):
        for n in range(first, 10**9, 16):
            created = await store.create_task(task(f"t{n}"), [SUBMITTED])
            os.write(1, f"{created.id} t{n}\\n".encode())

    await asyncio.gather(*(caller(n) for n in range(16)))

asyncio.run(main())
"""


def acknowledged_until_killed(path: Path) -> list[list[str]]:
    """Kill a writer that has acknowledged 300 tasks. Return id and name of all acknowledged tasks."""
    command = [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(300)]
        writer.kill()
        lines += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    return [line.split() for line in lines if line.endswith("\n")]


async def test_acknowledged_tasks_survive_sigkill_and_are_complete(sqlite_path: Path) -> None:
    acknowledged = acknowledged_until_killed(sqlite_path)
    store = open_store(f"sqlite:///{sqlite_path}")
    await store.open()
    tasks = {t.id: t for t in await store.unfinished_tasks()}
    assert len(acknowledged) >= 300
    assert all(tasks[int(task_id)].spec.name == name for task_id, name in acknowledged)
    assert await store.version() == max(t.version for t in tasks.values()) == len(tasks)
    for one in tasks.values():
        assert one.run == task("t").run
        assert await store.task_events(one.id) == [(1, SUBMITTED)]
    await store.close()


async def test_the_writer_commits_as_soon_as_the_expected_commands_have_arrived(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_module, "_WAIT_SECONDS", 0.25)

    async def caller(name: str) -> None:
        for number in range(30):
            await sqlite_store.create_task(task(f"{name}-{number}"), [SUBMITTED])

    async with asyncio.timeout(4):  # thirty full waits would take more than seven seconds
        await asyncio.gather(*(caller(f"c{i}") for i in range(16)))


@pytest.fixture
async def small_store(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose database has a size limit, which SQLite reports like a full disk."""
    pragmas = (*sqlite_module._PRAGMAS, "max_page_count=120")
    monkeypatch.setattr(sqlite_module, "_PRAGMAS", pragmas)
    store = open_store(f"sqlite:///{sqlite_path}")
    await store.open()
    return store


async def test_after_a_full_disk_the_store_accepts_small_writes(
    small_store: Store, sqlite_path: Path
) -> None:
    small = await small_store.create_task(task("small"), [SUBMITTED])
    before = await small_store.version()
    answers = await asyncio.gather(
        *(small_store.create_task(task(f"t{i}", "x" * 100_000), []) for i in range(10)),
        return_exceptions=True,
    )
    errors = [a for a in answers if isinstance(a, Unavailable)]
    assert errors
    assert str(sqlite_path) in str(errors[0])
    assert "full" in str(errors[0])
    made = [a for a in answers if isinstance(a, Task)]
    assert [t.id for t in await small_store.unfinished_tasks()] == [small.id, *(t.id for t in made)]
    assert await small_store.version() == before + len(made)
    saved = await small_store.save_task(replace(small, revision=2, reason="still writes"), [])
    assert saved is not None
    await small_store.close()


async def test_the_store_recovers_from_an_input_output_error(
    sqlite_store: Store, sqlite_path: Path
) -> None:
    before = await sqlite_store.create_task(task("before"), [])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        writes = (sqlite_store.create_task(task(f"t{i}", "x" * 200_000), []) for i in range(8))
        answers = await asyncio.gather(*writes, return_exceptions=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {type(a) for a in answers} <= {Task, Unavailable}
    assert f"{sqlite_path} failed: " in str(next(a for a in answers if isinstance(a, Unavailable)))
    made = [a for a in answers if isinstance(a, Task)]
    after = await sqlite_store.create_task(task("after"), [SUBMITTED])
    assert await sqlite_store.unfinished_tasks() == [before, *made, after]


async def test_a_failure_of_the_database_fails_the_whole_batch(
    sqlite_store: Store, sqlite_path: Path
) -> None:
    await sqlite_store.create_task(task("before"), [])
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    other.execute(
        "CREATE TRIGGER broken BEFORE INSERT ON task_events BEGIN SELECT no_such_function(); END"
    )
    answers = await asyncio.gather(
        *(sqlite_store.create_task(task(f"t{i}"), [SUBMITTED]) for i in range(4)),
        return_exceptions=True,
    )
    assert [type(a) for a in answers] == [Unavailable] * 4
    other.execute("DROP TRIGGER broken")
    other.close()
    await sqlite_store.create_task(task("after"), [SUBMITTED])
    assert [t.spec.name for t in await sqlite_store.unfinished_tasks()] == ["before", "after"]


async def test_an_unstorable_value_does_not_fail_the_rest_of_the_batch(sqlite_store: Store) -> None:
    answers = await asyncio.gather(
        sqlite_store.create_task(task("a"), []),
        sqlite_store.create_task(task("half a surrogate \udc80"), []),
        sqlite_store.create_task(replace(task("b"), whole_life_state=2**80), []),
        sqlite_store.create_task(task("c"), []),
        return_exceptions=True,
    )
    assert [type(a).__name__ for a in answers] == ["Task", "Invalid", "Invalid", "Task"]
    assert [t.spec.name for t in await sqlite_store.unfinished_tasks()] == ["a", "c"]


async def test_a_second_server_cannot_open_the_file(sqlite_store: Store, sqlite_path: Path) -> None:
    second = open_store(f"sqlite:///{sqlite_path}")
    with pytest.raises(Unavailable, match=f"{sqlite_path}.*another server.*{os.getpid()}") as error:
        await second.open()
    assert error.value.reason == "STORE_IN_USE"
    await sqlite_store.create_task(task("the first server still writes"), [])
    await sqlite_store.close()
    third = open_store(f"sqlite:///{sqlite_path}")
    await third.open()
    assert len(await third.unfinished_tasks()) == 1
    await third.close()


async def test_a_second_server_cannot_open_the_file_through_a_link(
    sqlite_store: Store, sqlite_path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_path)
    second = open_store(f"sqlite:///{link}")
    with pytest.raises(Unavailable, match="another server"):
        await second.open()


@pytest.mark.parametrize("replaced", [False, True])
async def test_writes_to_a_removed_or_replaced_file_are_refused(
    sqlite_store: Store, sqlite_path: Path, replaced: bool
) -> None:
    os.rename(sqlite_path, sqlite_path.with_suffix(".away"))
    if replaced:
        os.close(os.open(sqlite_path, os.O_CREAT))
    with pytest.raises(Unavailable, match=f"{sqlite_path} was removed or replaced") as error:
        await sqlite_store.create_task(task("lost"), [])
    assert error.value.reason == "STORE_REPLACED"


async def test_close_finishes_queued_writes_and_later_calls_are_refused(sqlite_path: Path) -> None:
    store = open_store(f"sqlite:///{sqlite_path}")
    await store.open()
    writes = [asyncio.ensure_future(store.create_task(task(f"t{i}"), [])) for i in range(40)]
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    assert all(w.done() and w.result().id for w in writes)
    with pytest.raises(Unavailable, match="closed"):
        await store.create_task(task("late"), [])
    with pytest.raises(Unavailable, match="closed"):
        await store.version()


async def test_a_cancelled_caller_does_not_disturb_another_write(sqlite_store: Store) -> None:
    cancelled = asyncio.ensure_future(sqlite_store.create_task(task("cancelled"), []))
    other = asyncio.ensure_future(sqlite_store.create_task(task("other"), []))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert (await other).spec.name == "other"


async def test_open_creates_missing_directories_and_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "hai.db"
    store = open_store(f"sqlite:///{path}")
    await store.open()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_the_error_names_a_path_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_store(f"sqlite:///{tmp_path}/file/hai.db")
    with pytest.raises(Unavailable, match=f"{tmp_path}/file"):
        await store.open()


async def test_the_error_names_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "hai.db"
    path.write_text("these are not the bytes of a database " * 100)
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(Unavailable, match=f"{path}.*not a database"):
        await store.open()


async def test_a_schema_of_a_newer_server_is_refused(sqlite_path: Path) -> None:
    connection = sqlite3.connect(sqlite_path)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    store = open_store(f"sqlite:///{sqlite_path}")
    with pytest.raises(Conflict, match=r"newer server \(revision 9999; this one knows \d{4}\)"):
        await store.open()


def plan(path: Path, statement: Select[Any], values: dict[str, object] | None = None) -> str:
    """Return SQLite's query plan for a statement."""
    compiled = statement.params(values or {}).compile(
        dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True, "render_postcompile": True}
    )
    connection = sqlite3.connect(path)
    rows = connection.execute(f"EXPLAIN QUERY PLAN {compiled}").fetchall()
    connection.close()
    return "; ".join(row[3] for row in rows)


def page_plan(path: Path, query: TaskQuery) -> str:
    return plan(path, queries._page_query(query, conditions(query.filter, "sqlite")))


def test_queries_of_pages_use_indexes(sqlite_path: Path) -> None:
    tagged, of_user = TaskFilter(tags=frozenset({"a"})), TaskFilter(users=frozenset({"a"}))
    unfinished = TaskFilter(not_states=frozenset({TaskState.FINISHED}))
    assert "task_tags_tag" in page_plan(sqlite_path, TaskQuery(tagged))
    assert "tasks_user_name" in page_plan(sqlite_path, TaskQuery(of_user))
    assert "tasks_unfinished" in page_plan(sqlite_path, TaskQuery(unfinished))
    for order in ("create_time", "priority", "name", "state"):
        assert "TEMP B-TREE" not in page_plan(sqlite_path, TaskQuery(order_by=order))


@pytest.mark.parametrize(
    ("queries_by_dialect", "values"),
    [
        pytest.param(guards._STORED, [1, 2], id="revisions"),
        pytest.param(guards._NAMES, ["a", "b"], id="names"),
        pytest.param(guards._REQUESTS, ["a", "b"], id="requests"),
    ],
)
def test_queries_of_guards_never_scan_an_index(
    sqlite_path: Path, queries_by_dialect: dict[str, Select[Any]], values: list[object]
) -> None:
    found = plan(sqlite_path, queries_by_dialect["sqlite"], {guards._VALUES: values})
    assert found.startswith("SEARCH tasks")
    assert "SCAN" not in found
