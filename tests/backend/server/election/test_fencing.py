"""A new leader raises the epoch. The store then refuses all writes of earlier leaders."""

from __future__ import annotations

import asyncio
import time

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url, text

from hai_backend.domain.errors import Deposed, HaiError, Unavailable
from hai_backend.server.election.lock_session import _TAKE, open_session
from hai_backend.store.connect import open_store
from hai_backend.store.sql.commands import Execute
from hai_backend.store.sql.databases.postgres import PostgresDatabase
from tests.support.builders import a_task

pytestmark = pytest.mark.postgres


async def take_lead(url: str) -> int | None:
    async with open_session(url, lambda: None) as session:
        return await session.take("x:1")


async def test_writes_of_an_earlier_epoch_are_refused(url: str) -> None:
    epoch = await take_lead(url)
    store = open_store(url, epoch)
    await store.open()
    saved = await store.create_task(a_task(name="saved"), ())
    await store.require_leader()
    assert await take_lead(url) == 2
    writes = [store.create_task(a_task(name=f"late{i}"), ()) for i in range(20)]
    refused = await asyncio.gather(*writes, store.save_task(saved, ()), return_exceptions=True)
    assert {type(error) for error in refused} == {Deposed}
    with pytest.raises(Deposed, match="epoch 2; this one led in 1"):
        await store.require_leader()
    assert await store.unfinished_tasks() == [saved]
    await store.close()


async def test_a_new_leader_waits_for_the_current_write(url: str) -> None:
    """The new leader reads every write that was acknowledged by the former one."""
    store = open_store(url, await take_lead(url))
    await store.open()
    acknowledged: list[str] = []

    async def write(i: int) -> None:
        try:
            await store.create_task(a_task(name=f"t{i}"), ())
            acknowledged.append(f"t{i}")
        except HaiError:
            pass

    writes = [asyncio.ensure_future(write(i)) for i in range(600)]  # more than one batch
    while not acknowledged:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await take_lead(url)
    next_leader = open_store(url, 2)
    await next_leader.open()
    visible = {task.spec.name for task in await next_leader.unfinished_tasks()}
    await asyncio.gather(*writes)
    assert visible == set(acknowledged)
    await asyncio.gather(store.close(), next_leader.close())


async def test_a_leader_can_renew_during_a_long_write(url: str) -> None:
    """A commit may take long on a slow disk. The server must remain the leader."""
    lock_owner = await asyncpg.connect(url)
    await lock_owner.execute("SELECT pg_advisory_lock(1)")
    async with open_session(url, lambda: None) as session:
        database = PostgresDatabase(make_url(url), await session.take("x:1"))
        await database.open()
        wait_for_lock = text("SELECT pg_advisory_xact_lock(1)")
        write = database.write(
            Execute(lambda transaction: transaction.connection.execute(wait_for_lock))
        )
        writing = asyncio.ensure_future(write)
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted"
        while not await lock_owner.fetchval(waits):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert await session.renew(1)
        await lock_owner.close()
        await writing
        await database.close()


async def test_a_write_that_waits_for_the_new_leader_is_refused(url: str) -> None:
    database = PostgresDatabase(make_url(url), await take_lead(url))
    await database.open()
    new_leader = await asyncpg.connect(url)
    async with new_leader.transaction():
        await new_leader.fetchrow(_TAKE, "y:1")
        writing = asyncio.ensure_future(database.write(Execute(lambda transaction: None)))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        other = await asyncpg.connect(url)
        while not await other.fetchval(waits):  # noqa: ASYNC110
            await asyncio.sleep(0)
    with pytest.raises(Deposed, match="epoch 2; this one led in 1"):
        await writing
    await asyncio.gather(new_leader.close(), other.close(), database.close())


async def test_a_leader_that_stalls_within_a_write_does_not_delay_the_next(url: str) -> None:
    epoch = await take_lead(url)
    database = PostgresDatabase(make_url(url), epoch)
    await database.open()
    duration = asyncio.ensure_future(asyncio.to_thread(asyncio.run, _measure_take(url)))
    # The event loop is blocked while the transaction is open, as in a paused process.
    with pytest.raises(Unavailable):
        await database.write(Execute(lambda transaction: time.sleep(3.5)))
    assert await duration < 3.4
    await database.close()


async def _measure_take(url: str) -> float:
    await asyncio.sleep(0.5)
    began = time.monotonic()
    while True:
        try:
            assert await take_lead(url) == 2
            return time.monotonic() - began
        except TimeoutError:  # a statement has a limit of 2 s
            continue


async def test_close_does_not_wait_for_an_unreachable_database(url: str, network) -> None:  # type: ignore[no-untyped-def]
    store = open_store(await network.open(), await take_lead(url))
    await store.open()
    await store.create_task(a_task(name="before"), ())
    network.cut()
    writes = [store.create_task(a_task(name=f"t{i}"), ()) for i in range(3)]
    calls = [*map(asyncio.ensure_future, (*writes, store.require_leader()))]
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < 8.0  # the limit of a statement is 60 s
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, Unavailable | asyncio.CancelledError) for result in results)
