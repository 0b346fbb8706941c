"""Whoever leads next raises the epoch; from then on no write of an earlier leader is taken."""

from __future__ import annotations

import asyncio
import time

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url, text

from hai_backend.domain.errors import Deposed, HaiError, Unavailable
from hai_backend.server.leadership.session import _TAKE, connected
from hai_backend.store.connect import open_store
from hai_backend.store.sql.commands import Do
from hai_backend.store.sql.postgres import PostgresDatabase
from tests.support.builders import a_task

pytestmark = pytest.mark.postgres


async def take(url: str) -> int | None:
    async with connected(url, lambda: None) as session:
        return await session.take("x:1")


async def test_a_leader_of_an_earlier_epoch_writes_nothing(url: str) -> None:
    epoch = await take(url)
    store = open_store(url, epoch)
    await store.open()
    kept = await store.create_task(a_task(name="kept"), ())
    await store.confirm()
    assert await take(url) == 2
    late = [store.create_task(a_task(name=f"late{i}"), ()) for i in range(20)]
    refused = await asyncio.gather(*late, store.save_task(kept, ()), return_exceptions=True)
    assert {type(answer) for answer in refused} == {Deposed}
    with pytest.raises(Deposed, match="epoch 2; this one led in 1"):
        await store.confirm()
    assert await store.unfinished_tasks() == [kept]
    await store.close()


async def test_taking_over_waits_for_the_write_that_is_under_way(url: str) -> None:
    """It is committed and known to the next leader, or it is not at all."""
    store = open_store(url, await take(url))
    await store.open()
    done: list[str] = []

    async def write(i: int) -> None:
        try:
            await store.create_task(a_task(name=f"t{i}"), ())
            done.append(f"t{i}")
        except HaiError:
            pass

    writes = [asyncio.ensure_future(write(i)) for i in range(600)]  # more than one batch
    while not done:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await take(url)
    next_leader = open_store(url, 2)
    await next_leader.open()
    known = {task.spec.name for task in await next_leader.unfinished_tasks()}
    await asyncio.gather(*writes)
    assert known == set(done)
    await asyncio.gather(store.close(), next_leader.close())


async def test_a_leader_renews_while_a_write_of_its_own_lasts(url: str) -> None:
    """A commit may take long, as on a disk that stalls: that is no reason to have another leader."""
    holding = await asyncpg.connect(url)
    await holding.execute("SELECT pg_advisory_lock(1)")
    async with connected(url, lambda: None) as session:
        database = PostgresDatabase(make_url(url), await session.take("x:1"))
        await database.open()
        lasting = text("SELECT pg_advisory_xact_lock(1)")
        write = database.write(Do(lambda transaction: transaction.connection.execute(lasting)))
        writing = asyncio.ensure_future(write)
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted"
        while not await holding.fetchval(waits):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert await session.renew(1)
        await holding.close()
        await writing
        await database.close()


async def test_a_write_that_meets_the_next_leader_on_its_way_is_refused(url: str) -> None:
    database = PostgresDatabase(make_url(url), await take(url))
    await database.open()
    taking = await asyncpg.connect(url)
    async with taking.transaction():
        await taking.fetchrow(_TAKE, "y:1")
        writing = asyncio.ensure_future(database.write(Do(lambda transaction: None)))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        other = await asyncpg.connect(url)
        while not await other.fetchval(waits):  # noqa: ASYNC110
            await asyncio.sleep(0)
    with pytest.raises(Deposed, match="epoch 2; this one led in 1"):
        await writing
    await asyncio.gather(taking.close(), other.close(), database.close())


async def test_a_leader_that_is_paused_within_a_write_does_not_hold_up_the_next(url: str) -> None:
    epoch = await take(url)
    database = PostgresDatabase(make_url(url), epoch)
    await database.open()
    took = asyncio.ensure_future(asyncio.to_thread(asyncio.run, _take_when(url)))
    # The loop stands still with the transaction open, like a paused process.
    with pytest.raises(Unavailable):
        await database.write(Do(lambda transaction: time.sleep(3.5)))
    assert await took < 3.4
    await database.close()


async def _take_when(url: str) -> float:
    await asyncio.sleep(0.5)
    began = time.monotonic()
    while True:
        try:
            assert await take(url) == 2
            return time.monotonic() - began
        except TimeoutError:  # a statement of the election waits 2 s at most
            continue


async def test_closing_does_not_wait_for_a_database_that_is_cut_off(url: str, network) -> None:  # type: ignore[no-untyped-def]
    store = open_store(await network.open(), await take(url))
    await store.open()
    await store.create_task(a_task(name="before"), ())
    network.cut()
    asked = [store.create_task(a_task(name=f"t{i}"), ()) for i in range(3)]
    waiting = [*map(asyncio.ensure_future, (*asked, store.confirm()))]
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < 8.0  # statements wait 60 s
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(answer, Unavailable | asyncio.CancelledError) for answer in answers)
