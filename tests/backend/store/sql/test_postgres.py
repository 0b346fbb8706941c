"""What only a server can show: connections that break, two writers at once."""

from __future__ import annotations

import asyncio

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url

from hai_backend.domain.errors import Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import ProgramSpec, TaskSpec
from hai_backend.domain.task import Task, TaskState
from hai_backend.server.leadership.session import connected
from hai_backend.store.connect import open_store
from hai_backend.store.sql.postgres import PostgresDatabase

pytestmark = pytest.mark.postgres
CUT = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'hai-server'"


def task(name: str) -> Task:
    spec = TaskSpec(name, ProgramSpec("a.py"))
    return Task(0, "alice", spec, TaskState.WAITING_INIT, Priority.NORMAL, 1.0)


async def test_lost_connections_are_replaced(postgres_url: str) -> None:
    store = open_store(postgres_url)
    await store.open()
    first = await store.create_task(task("a"), [])
    assert await store.get_task(first.id) == first
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(CUT + " AND datname = current_database()")
    second = await store.create_task(task("b"), [])
    assert await store.unfinished_tasks() == [first, second]
    await admin.close()
    await store.close()


async def test_a_database_that_falls_silent_does_not_hold_up_the_end(postgres_url: str) -> None:
    url, silent = make_url(postgres_url), asyncio.Event()
    ways: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ways.append(writer)
        while (data := await reader.read(65_536)) and not silent.is_set():
            writer.write(data)
        if not silent.is_set():
            writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(url.host, url.port or 5432)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    through = url.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
    store = open_store(through)
    await store.open()
    await store.create_task(task("a"), [])
    assert len(await store.unfinished_tasks()) == 1
    silent.set()
    async with asyncio.timeout(20):  # without a farewell; one waits for a minute
        await store.close()
    server.close()
    for way in ways:
        way.transport.abort()


async def test_a_write_cut_off_on_the_way_fails_in_words_and_the_writer_goes_on(
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
        await asyncio.sleep(0)  # the server has no event for it
    await other.execute(CUT + " AND datname = current_database()")
    failed = await asyncio.gather(*writes, return_exceptions=True)
    await holding.rollback()
    assert isinstance(failed[0], Unavailable)
    retried = [await store.create_task(task(f"late{i}"), []) for i in range(3)]
    assert all(t.id for t in retried)
    await asyncio.gather(other.close(), admin.close())
    await store.close()


async def test_a_write_that_was_cancelled_by_nobody_fails_and_the_writer_goes_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one task that writes ended as if the store had been closed: all later writes waited for ever."""

    def broken_off(*_: object) -> None:
        raise asyncio.CancelledError

    store = open_store(postgres_url)
    await store.open()
    with monkeypatch.context() as once:
        once.setattr(PostgresDatabase, "_apply", broken_off)
        with pytest.raises(Unavailable, match="may have been done or not"):
            await asyncio.wait_for(store.create_task(task("a"), []), 10)
    made = await asyncio.wait_for(store.create_task(task("b"), []), 10)
    assert await store.unfinished_tasks() == [made]
    await store.close()


async def test_two_servers_on_one_database_allot_each_version_once(postgres_url: str) -> None:
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


async def test_an_address_says_more_in_the_words_of_postgresql(postgres_url: str) -> None:
    more = {"sslmode": "prefer", "application_name": "x", "options": "-c search_path=ours"}
    url = make_url(postgres_url).update_query_dict(more).render_as_string(hide_password=False)
    admin = await asyncpg.connect(postgres_url)
    await admin.execute("CREATE SCHEMA ours")
    store = open_store(url)
    await store.open()
    assert (await store.create_task(task("a"), [])).id == 1
    async with connected(url, lambda: None) as session:
        assert await session.take("x:1") == 1
    assert await admin.fetchval("SELECT epoch FROM ours.leader") == 1
    await admin.close()
    await store.close()


async def test_a_password_may_hold_what_addresses_are_made_of(postgres_url: str) -> None:
    at = make_url(postgres_url)
    url = f"postgresql://{at.username}:a/b+c=#?:%40@{at.host}:{at.port}/{at.database}"
    store = open_store(url)
    await store.open()
    async with connected(url, lambda: None) as session:
        assert await session.take("x:1") == 1
    await store.close()


SEEN = """
    CREATE TABLE seen (statements text, locks text);
    CREATE FUNCTION see() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO seen VALUES (current_setting('statement_timeout'), current_setting('lock_timeout'));
    END $$;
    CREATE EVENT TRIGGER see ON ddl_command_end EXECUTE FUNCTION see()"""


async def test_a_migration_may_last_but_waits_for_no_lock_for_ever(postgres_url: str) -> None:
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(SEEN)
    store = open_store(postgres_url)
    await store.open()
    assert await admin.fetch("SELECT DISTINCT statements, locks FROM seen") == [("0", "30s")]
    await admin.close()
    await store.close()
