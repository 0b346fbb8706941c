"""Elections on PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url
from structlog.testing import capture_logs

from hai_backend.server.election.election import PostgresElection
from hai_backend.server.election.lock_session import LOST, open_session
from hai_backend.server.election.roles import Following, Leading, Role

pytestmark = pytest.mark.postgres


async def wait_for_role(election: PostgresElection, role: Role, within: float = 2.0) -> float:
    """Wait until a server has a role. Return the seconds that this took."""
    began = time.monotonic()
    async with asyncio.timeout(within):
        while election.role != role:
            await election.wait_for_change(election.role)
    return time.monotonic() - began


async def test_when_the_leader_resigns_another_server_leads(url: str, start_task: Any) -> None:
    a, b = PostgresElection(url, "a:1"), PostgresElection(url, "b:1")
    first = start_task(a.run())
    await wait_for_role(a, Leading(1))
    start_task(b.run())
    await wait_for_role(b, Following("a:1"))
    assert a.is_certain()
    first.cancel()
    assert await wait_for_role(b, Leading(2)) < 1.0
    assert a.role == Following()


async def test_of_many_servers_that_start_together_one_leads(url: str, start_task: Any) -> None:
    elections = [PostgresElection(url, f"{i}:1") for i in range(8)]
    for election in elections:
        start_task(election.run())
    async with asyncio.timeout(5):
        while any(e.role == Following() for e in elections):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (leader,) = [e for e in elections if isinstance(e.role, Leading)]
    address = f"{elections.index(leader)}:1"
    assert all(e.role == Following(address) for e in elections if e is not leader)


async def test_a_silent_leader_loses_its_session(url: str, start_task: Any) -> None:
    async with open_session(url, lambda: None) as paused:
        assert await paused.take("a:1") == 1
        b = PostgresElection(url, "b:1")
        start_task(b.run())
        assert 2.5 < await wait_for_role(b, Leading(2), within=5.0) < 4.5
        with pytest.raises(LOST):
            await paused.renew(1)


async def test_a_leader_without_network_stops_to_lead_and_follows_later(
    url: str, network: Any, start_task: Any
) -> None:
    a, b = PostgresElection(await network.open(), "a:1"), PostgresElection(url, "b:1")
    start_task(a.run())
    await wait_for_role(a, Leading(1))
    start_task(b.run())
    await wait_for_role(b, Following("a:1"))
    network.cut()
    cut_at = time.monotonic()
    stopped = asyncio.ensure_future(wait_for_role(a, Following(), within=5.0))
    await wait_for_role(b, Leading(2), within=5.0)
    assert time.monotonic() - cut_at < 4.5
    assert await stopped < 3.5
    network.mend()
    await wait_for_role(a, Following("b:1"), within=5.0)


async def test_a_leader_whose_session_ends_stops_to_lead_at_once(url: str, start_task: Any) -> None:
    a = PostgresElection(url, "a:1")
    start_task(a.run())
    await wait_for_role(a, Leading(1))
    async with open_session(url, lambda: None) as session:
        state, _ = await session.read_state()
        assert state.holder == state.backend
        await session.oust(state.backend)
        assert await wait_for_role(a, Following()) < 0.5
    await wait_for_role(a, Leading(2))


async def test_a_read_only_database_is_logged_once(url: str, start_task: Any) -> None:
    """A standby is read-only, and so is a primary whose disk is full."""
    await set_read_only(url, True)
    clock_reads: list[float] = []

    def monotonic() -> float:
        clock_reads.append(time.monotonic())
        return clock_reads[-1]

    a = PostgresElection(url, "a:1", monotonic)
    with capture_logs() as logged:
        start_task(a.run())
        while len(clock_reads) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (line,) = logged
    assert "read-only" in line["why"]
    await set_read_only(url, False)
    await wait_for_role(a, Leading(1))


async def set_read_only(url: str, read_only: bool) -> None:
    connection = await asyncpg.connect(url)
    name, value = make_url(url).database, "on" if read_only else "off"
    await connection.execute("SET default_transaction_read_only = off")
    await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}')
    await connection.close()
