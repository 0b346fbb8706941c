"""The election on a real PostgreSQL: one leads, another follows at once or within seconds, the first one knows."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url
from structlog.testing import capture_logs

from hai_backend.server.leadership.election import PostgresElection
from hai_backend.server.leadership.roles import Following, Leading, Role
from hai_backend.server.leadership.session import LOST, connected

pytestmark = pytest.mark.postgres


async def becomes(election: PostgresElection, role: Role, within: float = 2.0) -> float:
    """Seconds until it has this role."""
    began = time.monotonic()
    async with asyncio.timeout(within):
        while election.role != role:
            await election.changed(election.role)
    return time.monotonic() - began


async def test_one_leads_and_another_takes_over_when_it_resigns(url: str, running: Any) -> None:
    a, b = PostgresElection(url, "a:1"), PostgresElection(url, "b:1")
    first = running(a.run())
    await becomes(a, Leading(1))
    running(b.run())
    await becomes(b, Following("a:1"))
    assert a.fresh()
    first.cancel()
    assert await becomes(b, Leading(2)) < 1.0
    assert a.role == Following()


async def test_of_many_that_start_together_one_leads(url: str, running: Any) -> None:
    many = [PostgresElection(url, f"{i}:1") for i in range(8)]
    for election in many:
        running(election.run())
    async with asyncio.timeout(5):
        while any(e.role == Following() for e in many):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (leader,) = [e for e in many if isinstance(e.role, Leading)]
    address = f"{many.index(leader)}:1"
    assert all(e.role == Following(address) for e in many if e is not leader)


async def test_a_silent_leader_is_ousted_and_can_do_nothing(url: str, running: Any) -> None:
    async with connected(url, lambda: None) as paused:
        assert await paused.take("a:1") == 1
        b = PostgresElection(url, "b:1")
        running(b.run())
        assert 2.5 < await becomes(b, Leading(2), within=5.0) < 4.5
        with pytest.raises(LOST):
            await paused.renew(1)


async def test_a_leader_that_is_cut_off_knows_and_follows_when_it_comes_back(
    url: str, network: Any, running: Any
) -> None:
    a, b = PostgresElection(await network.open(), "a:1"), PostgresElection(url, "b:1")
    running(a.run())
    await becomes(a, Leading(1))
    running(b.run())
    await becomes(b, Following("a:1"))
    network.cut()
    cut = time.monotonic()
    knows = asyncio.ensure_future(becomes(a, Following(), within=5.0))
    await becomes(b, Leading(2), within=5.0)
    assert time.monotonic() - cut < 4.5
    assert await knows < 3.5
    network.mend()
    await becomes(a, Following("b:1"), within=5.0)


async def test_a_leader_whose_session_ends_stops_at_once(url: str, running: Any) -> None:
    a = PostgresElection(url, "a:1")
    running(a.run())
    await becomes(a, Leading(1))
    async with connected(url, lambda: None) as session:
        seen, _ = await session.look()
        assert seen.holder == seen.backend
        await session.oust(seen.backend)
        assert await becomes(a, Following()) < 0.5
    await becomes(a, Leading(2))


async def test_a_database_that_only_reads_is_told_once(url: str, running: Any) -> None:
    """As a standby does, or a primary whose disk is full."""
    await only_reads(url, True)
    tries: list[float] = []

    def monotonic() -> float:
        tries.append(time.monotonic())
        return tries[-1]

    a = PostgresElection(url, "a:1", monotonic)
    with capture_logs() as told:
        running(a.run())
        while len(tries) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (line,) = told
    assert "read-only" in line["why"]
    await only_reads(url, False)
    await becomes(a, Leading(1))


async def only_reads(url: str, whether: bool) -> None:
    connection = await asyncpg.connect(url)
    name, value = make_url(url).database, "on" if whether else "off"
    await connection.execute("SET default_transaction_read_only = off")
    await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}')
    await connection.close()
