"""The wall clock of an agent jumps by an hour, forward or back, and its lease still ends at the right time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hai_backend.launch.base import RankKey
from hai_backend.launch.rank_dirs import path_of
from tests.silence import program, witness
from tests.silence.agents import Agents, agents, argv
from tests.silence.clock import TRUE_TIME, Clock
from tests.silence.lease_server import LeaseServer, Rank, lease_server
from tests.silence.network.proxy import Proxy, proxy_to
from tests.silence.schedules.schedule import TIMING

JUMPS = pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forth", "back"])
KEY = RankKey(1, 1, 0)


@dataclass
class Here:
    """A server, and what an agent with a wrong clock needs to reach it."""

    server: LeaseServer
    proxy: Proxy
    agents: Agents
    clock: Clock
    home: Path

    async def start(self, *words: str) -> Rank:
        self.server.write_address(self.home, self.proxy.address)
        program = [*TRUE_TIME, *argv(self.home, words)]
        return await self.agents.start(self.home, KEY, program, variables=self.clock.variables())


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with (
        lease_server(tmp_path, TIMING) as server,
        proxy_to(server.address) as proxy,
        agents(server) as started,
    ):
        yield Here(server, proxy, started, Clock(tmp_path), tmp_path)


@JUMPS
async def test_a_clock_that_jumps_ends_no_lease(here: Here, jump: float) -> None:
    rank = await here.start("--steps", "60", "--pace", "0.05")
    here.clock.jump(jump)
    async with asyncio.timeout(30):
        await rank.exited.wait()
    assert rank.exit_code == 0
    printed = [text for text in here.server.lines(KEY) if text.startswith("run ")]
    assert printed == [program.line(step) for step in range(60)]


@JUMPS
async def test_a_clock_that_jumps_prolongs_no_lease(here: Here, jump: float) -> None:
    rank = await here.start("--stubborn")
    await asyncio.sleep(2 * TIMING.heartbeat)
    here.proxy.hold()
    here.clock.jump(jump)
    cut_at = time.monotonic()
    await asyncio.wait_for(rank.until_ended_by_time(), 10)
    assert time.monotonic() - cut_at < TIMING.fence_after + 1
    assert witness.is_free(here.home, KEY.task_id), "the program runs on beside its successor"
    assert "lease" in (path_of(here.home, KEY) / "failure.txt").read_text()
