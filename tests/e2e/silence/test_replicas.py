"""Two servers with one PostgreSQL, and silence between a leader and its database, or a leader and its agents.

A leader that is cut off from its database but not from its agents must release its agents to the next leader. A leader
that is cut off from its agents but not from its database stays the leader, shows the agents as silent, and ends no run.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from hai.client.client import Client
from hai_backend.auth.tokens import run_token
from hai_backend.domain.timing import LEADER_SECONDS
from hai_backend.launch.base import RankKey
from hai_backend.lifecycle.limits import DEFAULTS
from tests.silence import cluster, witness
from tests.silence.heartbeats import asking
from tests.silence.network.proxy import Proxy, proxy_to
from tests.silence.postgres import Postgres, private_postgres
from tests.silence.ranks import Pids
from tests.support.databases import create_database
from tests.support.servers import Replicas, ServerProcess

PACE = 0.05
LEADS_WITHIN = 20.0  # generous, for a busy machine; see `python -m tests.bench leader`

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.xdist_group("silence-replicas"),
    pytest.mark.timeout(180),
]
_finishes = itertools.count()


@pytest.fixture(scope="module")
def postgres_here() -> Iterator[Postgres]:
    with private_postgres() as made:
        yield made


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers, each of which reaches the database through its own proxy."""

    replicas: Replicas
    databases: dict[str, Proxy]  # by the home of the server

    def database_of(self, server: ServerProcess) -> Proxy:
        return self.databases[str(server.home)]

    def other(self, server: ServerProcess) -> ServerProcess:
        return next(each for each in self.replicas.servers if each is not server)

    async def until_leads(self, server: ServerProcess) -> None:
        async def leads() -> bool:
            return await self.replicas.leader() is server

        await cluster.until(leads, LEADS_WITHIN, "the other server leads")


@pytest.fixture
async def servers(postgres_here: Postgres, tmp_path: Path) -> AsyncIterator[Servers]:
    address = postgres_here.url.partition("@")[2].partition("/")[0]
    url = await create_database(postgres_here.url)
    replicas = Replicas(tmp_path, 2, url, "--nodes", "2")
    async with AsyncExitStack() as stack:
        proxies = {}
        for server in replicas.servers:
            cluster.configure(server.home)
            proxy = await stack.enter_async_context(proxy_to(address))
            settings = server.home / "hai.toml"
            settings.write_text(settings.read_text().replace(address, proxy.address))
            proxies[str(server.home)] = proxy
        await asyncio.to_thread(replicas.start)
        try:
            yield Servers(replicas, proxies)
        finally:
            await asyncio.to_thread(replicas.end)


class Gang:
    """A task of two ranks that print until `finish` is called."""

    def __init__(self, client: Client, directory: Path) -> None:
        self._client = client
        self._directory = directory
        self._finish = directory / f"finish{next(_finishes)}"
        self.task = 0

    async def start(self) -> None:
        spec = cluster.task_spec(
            self._directory, "--pace", str(PACE), "--until", str(self._finish), nodes=2
        )
        self.task = (await cluster.patient(lambda: self._client.tasks.create(spec))).id
        await cluster.until_running(self._client, self.task)

    async def until_heard(self) -> None:
        """Wait until lines that are printed from now on arrive."""
        before = len(await cluster.lines(self._client, self.task))

        async def more() -> bool:
            now = await cluster.lines(self._client, self.task)
            return len(now) > before + cluster.SILENCE / PACE / 10

        await cluster.until(more, LEADS_WITHIN, "lines of now arrive")

    async def finish(self) -> None:
        """Let the programs finish, and check that nothing has disturbed them."""
        self._finish.touch()
        done = cluster.patient(
            lambda: self._client.tasks.wait(self.task, timeout=cluster.BACK_WITHIN)
        )
        await done
        for rank in range(2):
            assert witness.words(self._directory, self.task, rank) == [(1, "begin"), (1, "end")]
        steps = [witness.steps(self._directory, self.task, 1, rank) or 0 for rank in range(2)]
        await cluster.undisturbed(self._client, self.task, steps, within=5)


@pytest.fixture
async def gang(servers: Servers, tmp_path: Path) -> AsyncIterator[Gang]:
    async with Client(servers.replicas.profile()) as client:
        yield Gang(client, tmp_path)


@pytest.mark.parametrize("silence", [Proxy.hold, Proxy.drop], ids=["held", "dropped"])
async def test_a_leader_that_is_cut_off_from_its_database_loses_its_agents(
    servers: Servers, gang: Gang, silence: Callable[[Proxy], None]
) -> None:
    await gang.start()
    leader = await servers.replicas.leader()
    silence(servers.database_of(leader))
    await servers.until_leads(servers.other(leader))
    await gang.until_heard()
    await servers.database_of(leader).heal()
    await gang.until_heard()
    await gang.finish()


async def test_a_leader_that_is_cut_off_from_its_database_renews_no_lease_soon(
    servers: Servers, gang: Gang
) -> None:
    """A lease must never be renewed when another server may already be the leader. fencing.md depends on this."""
    await gang.start()
    leader, key = await servers.replicas.leader(), RankKey(gang.task, 1, 0)
    pids = Pids(servers.replicas.shared / "run" / str(key)).named()
    secret = (servers.replicas.shared / "run-token.key").read_bytes()
    token = run_token(secret, key.task_id, key.run, key.rank)
    with cluster.stopped([pids["supervisor"], pids["agent"]]):
        async with asking(leader.address(), key, token) as leases:
            await leases.until_renewed()
            cut_at = time.monotonic()
            servers.database_of(leader).hold()
            await servers.until_leads(servers.other(leader))
            await asyncio.sleep(LEADER_SECONDS)
            assert leases.renewed_at[-1] <= cut_at + LEADER_SECONDS, (
                "since the database went silent"
            )
            await servers.database_of(leader).heal()
    await gang.until_heard()
    await gang.finish()


async def test_a_database_that_is_stopped(
    servers: Servers, gang: Gang, postgres_here: Postgres
) -> None:
    await gang.start()
    with cluster.stopped(postgres_here.pids()):
        await asyncio.sleep(2 * cluster.SILENCE)
    await gang.until_heard()
    await gang.finish()


async def test_a_leader_that_is_cut_off_from_its_agents_shows_them_as_silent(
    servers: Servers, gang: Gang
) -> None:
    leader = await servers.replicas.leader()
    async with proxy_to(leader.address()) as proxy, Client(leader.profile()) as client:
        cluster.route_agents(servers.replicas.shared, proxy.address)
        await gang.start()
        proxy.hold()

        async def silent() -> bool:
            ranks = (await client.tasks.get(gang.task)).run.ranks
            return all(rank.HasField("silent_since_time") for rank in ranks)

        async def heard() -> bool:
            ranks = (await client.tasks.get(gang.task)).run.ranks
            return not any(rank.HasField("silent_since_time") for rank in ranks)

        within = DEFAULTS.return_within + cluster.BACK_WITHIN  # the leader is new
        await cluster.until(silent, within, "both agents are shown as silent")
        assert await servers.replicas.leader() is leader
        assert await silent()
        await proxy.heal()
        await gang.until_heard()
        await cluster.until(heard, cluster.BACK_WITHIN, "both agents are heard again")
        await gang.finish()


async def test_agents_that_their_leader_cannot_hear_reach_it_by_another_server(
    servers: Servers, gang: Gang
) -> None:
    leader = await servers.replicas.leader()
    async with proxy_to(leader.address()) as proxy:
        both = f"{proxy.address},{servers.other(leader).address()}"
        cluster.route_agents(servers.replicas.shared, both)
        await gang.start()
        proxy.drop()
        await gang.until_heard()
        assert await servers.replicas.leader() is leader
        await gang.finish()
