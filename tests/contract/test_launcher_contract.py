"""The contract of launchers, fake and real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from hai_backend.config import Settings
from hai_backend.domain.node import Node
from hai_backend.launch.base import (
    KillRequest,
    Launcher,
    LauncherEvent,
    LaunchFailed,
    NodeList,
    RankKey,
    RankLaunch,
    RankList,
    RankTerminated,
)
from hai_backend.launch.fake import FakeLauncher
from hai_backend.launch.kubernetes import launcher as kubernetes
from hai_backend.launch.kubernetes.nodes import Timeouts
from hai_backend.launch.local_launcher import ProcessLauncher, sweep
from hai_backend.launch.request import RunRequest
from tests.support.agent_pods import make_launcher, process_pod_cluster


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """No server listens there: agents that are started try to connect until they are ended."""
    yield tmp_path.resolve()
    sweep(tmp_path)


@asynccontextmanager
async def _fake(home: Path) -> AsyncIterator[Launcher]:
    yield FakeLauncher([Node("node1"), Node("node2")])


@asynccontextmanager
async def _process(home: Path) -> AsyncIterator[Launcher]:
    yield ProcessLauncher(home, Settings(home=home, nodes=2))


@asynccontextmanager
async def _kubernetes(home: Path) -> AsyncIterator[Launcher]:
    async with process_pod_cluster(home, 2) as cluster:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kubernetes, "Timeouts", partial(Timeouts, forced_delete=1.0))
            made = make_launcher(cluster, home)
        yield made


@pytest.fixture(
    params=[
        pytest.param(_fake, id="fake"),
        pytest.param(_process, id="process", marks=pytest.mark.e2e),
        pytest.param(_kubernetes, id="kubernetes", marks=pytest.mark.e2e),
    ]
)
async def launcher(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[Launcher]:
    async with request.param(home) as made:
        yield made
        await made.close()


class Watching:
    """The events of a launcher, which are read one at a time."""

    def __init__(self, launcher: Launcher) -> None:
        self._events = launcher.events()

    async def next(self) -> LauncherEvent:
        async with asyncio.timeout(20):
            return await anext(self._events)

    async def begun(self) -> tuple[NodeList, RankList]:
        nodes, listed = await self.next(), await self.next()
        assert isinstance(nodes, NodeList)
        assert isinstance(listed, RankList)
        return nodes, listed


def rank(index: int, node: str = "node1") -> RankLaunch:
    run = RunRequest(7, 1, user="ada", uid=1000)
    return RankLaunch(RankKey(7, 1, index), node, "token", run=run)


async def test_nodes_come_first_then_what_exists(launcher: Launcher) -> None:
    nodes, listed = await Watching(launcher).begun()
    assert [n.name for n in nodes.nodes] == ["node1", "node2"]
    assert listed.keys == frozenset()


async def test_a_started_rank_exists_until_it_is_killed_and_is_then_gone(
    launcher: Launcher,
) -> None:
    watching = Watching(launcher)
    await watching.begun()
    await launcher.start([rank(0), rank(1, "node2")])
    await launcher.kill(KillRequest(RankKey(7, 1, 1)))
    assert await watching.next() == RankTerminated(RankKey(7, 1, 1))


async def test_starting_twice_starts_once(launcher: Launcher) -> None:
    watching = Watching(launcher)
    await watching.begun()
    await launcher.start([rank(0)])
    await launcher.start([rank(0)])
    await launcher.kill(KillRequest(rank(0).key))
    await launcher.start([rank(1)])
    await launcher.kill(KillRequest(rank(1).key))
    assert {await watching.next(), await watching.next()} == {
        RankTerminated(rank(0).key),
        RankTerminated(rank(1).key),
    }


async def test_killing_what_does_not_exist_says_that_it_is_gone(launcher: Launcher) -> None:
    watching = Watching(launcher)
    await watching.begun()
    await launcher.kill(KillRequest(RankKey(99, 1, 0)))
    assert await watching.next() == RankTerminated(RankKey(99, 1, 0))


async def test_what_may_run_and_is_not_there_is_gone_in_the_end(
    launcher: Launcher,
) -> None:
    """After a restart of the server, its store has a rank that does not exist any more."""
    watching = Watching(launcher)
    await watching.begun()
    await launcher.kill(KillRequest(RankKey(99, 1, 0), "node1", ran=True))
    assert await watching.next() == RankTerminated(RankKey(99, 1, 0))


async def test_a_rank_whose_program_has_ended_is_gone_when_it_is_killed(launcher: Launcher) -> None:
    watching = Watching(launcher)
    await watching.begun()
    await launcher.start([rank(0)])
    await launcher.kill(KillRequest(rank(0).key, "node1", exited=True))
    assert await watching.next() == RankTerminated(rank(0).key)
    await launcher.kill(
        KillRequest(rank(1).key, "node1", exited=True)
    )  # no process or pod of it exists
    assert await watching.next() == RankTerminated(rank(1).key)


async def test_a_node_that_is_not_there_is_told_and_nothing_exists(launcher: Launcher) -> None:
    watching = Watching(launcher)
    await watching.begun()
    await launcher.start([rank(0, "node9")])
    event = await watching.next()
    assert isinstance(event, LaunchFailed)
    assert (event.key, event.unschedulable) == (rank(0).key, True)
    assert "node9" in event.reason
