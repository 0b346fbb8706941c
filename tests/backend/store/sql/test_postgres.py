"""PostgreSQL: lost connections, silent databases, cancelled writes, two servers, addresses, migrations."""

from __future__ import annotations

import asyncio

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url

from hai_backend.domain.errors import Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ProgramSpec, TaskSpec
from hai_backend.domain.task import Task, TaskState
from hai_backend.server.election.lock_session import open_session
from hai_backend.store.connect import open_store
from hai_backend.store.sql.databases.postgres import PostgresDatabase

pytestmark = pytest.mark.postgres
CLOSE_CONNECTIONS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE application_name = 'hai-server' AND datname = current_database()"
)


def task(name: str) -> Task:
    spec = TaskSpec(name, ProgramSpec("a.py"))
    return Task(0, "alice", spec, TaskState.WAITING_INIT, Priority.NORMAL, 1.0)


async def test_lost_connections_are_replaced(postgres_url: str) -> None:
    store = open_store(postgres_url)
    await store.open()
    first = await store.create_task(task("a"), [])
    assert await store.get_task(first.id) == first
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(CLOSE_CONNECTIONS)
    second = await store.create_task(task("b"), [])
    assert await store.unfinished_tasks() == [first, second]
    await admin.close()
    await store.close()


async def test_close_does_not_wait_for_a_silent_database(postgres_url: str) -> None:
    url, silent = make_url(postgres_url), asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while (data := await reader.read(65_536)) and not silent.is_set():
            writer.write(data)
        if not silent.is_set():
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        database = await asyncio.open_connection(url.host, url.port or 5432)
        await asyncio.gather(pump(reader, database[1]), pump(database[0], writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    relayed_url = url.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
    store = open_store(relayed_url)
    await store.open()
    await store.create_task(task("a"), [])
    assert len(await store.unfinished_tasks()) == 1
    silent.set()
    async with asyncio.timeout(20):  # a regular close of a connection would take a minute
        await store.close()
    server.close()
    for writer in writers:
        writer.transport.abort()


async def test_after_a_connection_breaks_during_a_write_the_writer_continues(
    postgres_url: str,
) -> None:
    store = open_store(postgres_url)
    await store.open()
    admin = await asyncpg.connect(postgres_url)
    holding = admin.transaction()
    await holding.start()
    await admin.execute("SELECT * FROM meta FOR UPDATE")
    writes = [asyncio.ensure_future(store.create_task(task(f"t{i}"), [])) for i in range(3)]
    other = await asyncpg.connect(postgres_url)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while not await other.fetchval(waiting + " AND datname = current_database()"):  # noqa: ASYNC110
        await asyncio.sleep(0)  # polls, because PostgreSQL does not report that a statement waits
    await other.execute(CLOSE_CONNECTIONS)
    failed = await asyncio.gather(*writes, return_exceptions=True)
    await holding.rollback()
    assert isinstance(failed[0], Unavailable)
    retried = [await store.create_task(task(f"late{i}"), []) for i in range(3)]
    assert all(t.id for t in retried)
    await asyncio.gather(other.close(), admin.close())
    await store.close()


async def test_after_a_cancelled_error_within_a_write_the_writer_continues(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    store = open_store(postgres_url)
    await store.open()
    with monkeypatch.context() as once:
        once.setattr(PostgresDatabase, "_execute", raise_cancelled)
        with pytest.raises(Unavailable, match="may have been done or not"):
            await asyncio.wait_for(store.create_task(task("a"), []), 10)
    made = await asyncio.wait_for(store.create_task(task("b"), []), 10)
    assert await store.unfinished_tasks() == [made]
    await store.close()


async def test_two_servers_on_one_database_assign_each_version_once(postgres_url: str) -> None:
    stores = [open_store(postgres_url) for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))
    made = await asyncio.gather(
        *(
            store.create_task(task(f"{n}-{i}"), [])
            for i in range(50)
            for n, store in enumerate(stores)
        )
    )
    assert sorted(t.version for t in made) == list(range(1, 101))
    assert sorted(t.id for t in made) == list(range(1, 101))
    again = await asyncio.gather(
        *(store.create_task(task("same"), []) for store in stores), return_exceptions=True
    )
    assert sorted(type(a).__name__ for a in again) == ["Conflict", "Task"]
    await asyncio.gather(*(store.close() for store in stores))


async def test_an_address_may_have_the_parameters_of_postgresql(postgres_url: str) -> None:
    parameters = {"sslmode": "prefer", "application_name": "x", "options": "-c search_path=ours"}
    url = make_url(postgres_url).update_query_dict(parameters).render_as_string(hide_password=False)
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("CREATE SCHEMA ours")
    store = open_store(url)
    await store.open()
    assert (await store.create_task(task("a"), [])).id == 1
    async with open_session(url, lambda: None) as session:
        assert await session.take("x:1") == 1
    assert await admin.fetchval("SELECT epoch FROM ours.leader") == 1
    await admin.close()
    await store.close()


async def test_a_password_may_contain_the_separators_of_an_address(postgres_url: str) -> None:
    base = make_url(postgres_url)
    address = f"{base.host}:{base.port}/{base.database}"
    url = f"postgresql://{base.username}:a/b+c=#?:%40@{address}"
    store = open_store(url)
    await store.open()
    async with open_session(url, lambda: None) as session:
        assert await session.take("x:1") == 1
    await store.close()


RECORD_TIMEOUTS = """
    CREATE TABLE timeouts (statements text, locks text);
    CREATE FUNCTION record_timeouts() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO timeouts VALUES (current_setting('statement_timeout'), current_setting('lock_timeout'));
    END $$;
    CREATE EVENT TRIGGER record_timeouts ON ddl_command_end EXECUTE FUNCTION record_timeouts()"""


async def test_a_migration_has_no_time_limit_but_limits_its_wait_for_locks(
    postgres_url: str,
) -> None:
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(RECORD_TIMEOUTS)
    store = open_store(postgres_url)
    await store.open()
    assert await admin.fetch("SELECT DISTINCT statements, locks FROM timeouts") == [("0", "30s")]
    await admin.close()
    await store.close()
