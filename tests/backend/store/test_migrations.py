"""Migrations create the tables of store/tables on both databases and keep the rows of older servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    Table,
    create_engine,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from hai_backend.domain.node import Group
from hai_backend.domain.task import Rank, RankState
from hai_backend.store.migrations import NEWEST, config, upgrade
from hai_backend.store.sql.convert import rank_from_row, rank_to_row, run_from_row
from hai_backend.store.sql.convert_admin import group_from_row
from hai_backend.store.tables import Base
from hai_backend.store.tables.cluster import GROUPS
from hai_backend.store.tables.tasks import RANKS, RUNS, TASKS

CHECKPOINT_TIMES = ("load_seconds", "save_seconds", "write_seconds")  # of revision 16


def differences(connection: Connection) -> list[Any]:
    upgrade(connection)
    upgrade(connection)  # the second call does nothing
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, Base.metadata))


def partial_indexes(connection: Connection) -> list[tuple[str, bool]]:
    name = connection.dialect.name
    found = inspect(connection).get_indexes("tasks")
    partial = {i["name"]: i for i in found if i["dialect_options"].get(f"{name}_where") is not None}
    return sorted((str(key), bool(index["unique"])) for key, index in partial.items())


PARTIAL = [("tasks_request", True), ("tasks_unfinished", False), ("tasks_unfinished_name", True)]


def test_migrations_create_the_declared_tables_on_sqlite(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'x.db'}")
    with engine.begin() as connection:
        assert differences(connection) == []
        assert partial_indexes(connection) == PARTIAL
    engine.dispose()


@pytest.mark.postgres
async def test_migrations_create_the_declared_tables_on_postgres(postgres_url: str) -> None:
    url = make_url(postgres_url).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        assert await connection.run_sync(differences) == []
        assert await connection.run_sync(partial_indexes) == PARTIAL


RANK = {
    "task_id": 1, "run": 1, "index": 0, "node": "n0", "state": "RUNNING", "role": "",
    "address": "10.0.0.1", "free_port": 4000, "exit_code": None, "last_lines": "最后",
    "started_at": 3.25, "ended_at": None,
}  # fmt: skip


def migrate_rank_of_0001(connection: Connection) -> tuple[Any, ...]:
    """Migrate a database of the first revision that contains a rank. Return the row of the rank."""
    command.upgrade(config(connection), "0001")
    columns = ", ".join(f'"{name}"' for name in RANK)
    values = ", ".join(f":{name}" for name in RANK)
    connection.execute(text(f"INSERT INTO ranks ({columns}) VALUES ({values})"), RANK)
    upgrade(connection)
    return tuple(connection.execute(select(RANKS)).one())


def check_rank(row: tuple[Any, ...]) -> None:
    started = Rank(0, "n0", RankState.RUNNING, "", "10.0.0.1", 4000, None, "最后", 3.25)
    assert rank_from_row(row) == started
    assert row == rank_to_row(1, 1, started)


def test_ranks_of_the_first_revision_are_migrated_on_sqlite() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        check_rank(migrate_rank_of_0001(connection))
        assert differences(connection) == []
    engine.dispose()


def test_tasks_of_the_first_revision_have_no_measurements() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        command.upgrade(config(connection), "0001")
        for table in (TASKS, RUNS):
            added = (
                *("progress", "awaited", "asked_at", "yielded", "environment_lock"),
                *("killed_at", "acknowledged_at", *CHECKPOINT_TIMES),
            )
            known = [c for c in table.columns if c.name not in added]
            values = {c.name: 0 if c.type.python_type is not str else "x" for c in known}
            old = Table(table.name, MetaData(), *(Column(c.name, c.type) for c in known))
            connection.execute(insert(old), values)
        upgrade(connection)
        task = connection.execute(select(TASKS.c.progress, TASKS.c.awaited)).one()
        assert tuple(task) == ("{}", "[]")
        new = select(RUNS.c.asked_at, RUNS.c.yielded, RUNS.c.environment_lock, RUNS.c.killed_at)
        assert tuple(connection.execute(new).one()) == (None, False, "", None)
        times = select(*(RUNS.c[name] for name in CHECKPOINT_TIMES))
        assert tuple(connection.execute(times).one()) == (None, None, None)
    engine.dispose()


@pytest.mark.parametrize(
    ("acknowledged", "asked_at", "acknowledged_at"),
    [(True, 7.5, 7.5), (False, 7.5, None), (False, None, None)],
    ids=["acknowledged", "asked", "running"],
)
def test_runs_of_revision_14_acknowledged_when_they_were_asked(
    acknowledged: bool, asked_at: float | None, acknowledged_at: float | None
) -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        command.upgrade(config(connection), "0014")
        added = ("acknowledged_at", *CHECKPOINT_TIMES)
        known = [c for c in RUNS.columns if c.name not in added]
        values = {c.name: 0 if c.type.python_type is not str else "x" for c in known}
        values |= {"state": "SUSPENDING", "acknowledged": acknowledged, "asked_at": asked_at}
        old = Table("runs", MetaData(), *(Column(c.name, c.type) for c in known))
        connection.execute(insert(old), values)
        upgrade(connection)
        run = run_from_row(connection.execute(select(RUNS)).one(), ())
    assert (run.asked_at, run.acknowledged_at) == (asked_at, acknowledged_at)
    engine.dispose()


def test_groups_of_the_first_revision_have_no_policy() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        command.upgrade(config(connection), "0001")
        connection.execute(text("INSERT INTO node_groups (name, packed) VALUES ('small', true)"))
        upgrade(connection)
        assert group_from_row(connection.execute(select(GROUPS)).one()) == Group(
            "small", packed=True
        )
    engine.dispose()


@pytest.mark.postgres
async def test_ranks_of_the_first_revision_are_migrated_on_postgres(postgres_url: str) -> None:
    url = make_url(postgres_url).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        check_rank(await connection.run_sync(migrate_rank_of_0001))
    await engine.dispose()


def test_newest_is_the_head_of_the_migrations() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        script = ScriptDirectory.from_config(config(connection))
    engine.dispose()
    assert script.get_current_head() == NEWEST


OLDER = [f"{number:04}" for number in range(1, int(NEWEST))]


def migrate_and_fill(connection: Connection, revision: str) -> dict[Table, Any]:
    """Migrate to a revision and insert a row into each table. Return the rows by table."""
    command.upgrade(config(connection), revision)
    known = MetaData()
    known.reflect(connection)
    tables = [t for t in known.sorted_tables if t.name != "alembic_version"]
    return {table: insert_row(connection, table, 7) for table in tables}


def insert_row(connection: Connection, table: Table, number: int) -> tuple[Any, ...]:
    """Insert a row whose numbers and texts contain this number. Return the row."""
    kinds = {int: number, str: f"t{number}", float: number + 0.5, bool: True, bytes: b"7"}
    row = {column.name: kinds[column.type.python_type] for column in table.columns}
    connection.execute(insert(table), row)
    return tuple(row.values())


def read_rows(connection: Connection, table: Table) -> list[tuple[Any, ...]]:
    """Read all rows with the columns that the table had before the migration."""
    return [tuple(row) for row in connection.execute(select(table))]


def check_upgrade_from(connection: Connection, revision: str) -> None:
    """Check that rows are kept, and that an older server can still write rows, as it does in a rolling upgrade."""
    before = migrate_and_fill(connection, revision)
    upgrade(connection)
    for table, row in before.items():
        assert row in read_rows(connection, table), table.name
        assert insert_row(connection, table, 8) in read_rows(connection, table), table.name


@pytest.mark.parametrize("revision", OLDER)
def test_an_older_server_can_still_write_after_the_migration(revision: str) -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        check_upgrade_from(connection, revision)
    engine.dispose()


@pytest.mark.postgres
async def test_an_older_server_can_still_write_after_the_migration_on_postgres(
    postgres_url: str,
) -> None:
    url = make_url(postgres_url).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url, poolclass=NullPool)
    for revision in OLDER:
        async with engine.connect() as connection:  # rolled back at the end
            await connection.run_sync(check_upgrade_from, revision)
    await engine.dispose()
