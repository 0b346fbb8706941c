"""Tunnels on the server: flow control, ends, and limits for agents."""

from __future__ import annotations

import asyncio
import math

import pytest

from hai.v1 import agent_service_pb2 as pb
from hai.v1.container_pb2 import SERVICE_STATE_STARTING, ServiceStatus
from hai.v1.tunnel_pb2 import TunnelEnd, TunnelTarget
from hai_backend.controllers.cluster import tunnels as tunnels_module
from hai_backend.controllers.cluster.agents import ConnectedAgents, Session
from hai_backend.controllers.cluster.service_status import ServiceStates
from hai_backend.controllers.cluster.tunnels import Tunnels, rank_of
from hai_backend.controllers.tasks.idle_containers import suspend_if_idle
from hai_backend.domain.errors import Denied, Exhausted, NotFound, Unavailable
from hai_backend.domain.priority import Priority
from hai_backend.domain.spec import OptionsSpec, ProgramSpec, TaskSpec, TaskType
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from hai_backend.launch.base import RankKey
from hai_backend.launch.flow_control import WINDOW_BYTES, ReceivedBytes, SendWindow
from hai_backend.testing import ManualClock

KEY = RankKey(7, 1, 0)
TARGET = TunnelTarget(port=22)


def task(
    run: RunState = RunState.RUNNING, rank: RankState = RankState.RUNNING, **options: int
) -> Task:
    ranks = (Rank(0, "n0", rank),)
    spec = TaskSpec(
        "t", ProgramSpec("sleep"), task_type=TaskType.JUPYTER, options=OptionsSpec(**options)
    )
    made = Run(1, run, ranks, 1.0, Priority.NORMAL, started_at=100.0)
    return Task(7, "ada", spec, TaskState.RUNNING, Priority.AUTO, 1.0, run=made)


@pytest.fixture
def hub() -> ConnectedAgents:
    made = ConnectedAgents()
    made.attach(KEY, Session())
    return made


async def test_bytes_of_both_directions_and_a_clean_end(hub: ConnectedAgents) -> None:
    tunnels = Tunnels(hub)
    with tunnels.opened(KEY, TARGET, "ada") as tunnel:
        tunnels.accept(KEY, tunnel.name).confirm_reached()
        await tunnel.wait_reached()
        assert await tunnel.send_to_rank(pb.CarryResponse(data=b"in"))
        tunnel.receive_from_agent(pb.CarryRequest(data=b"out"))
        tunnel.receive_from_agent(pb.CarryRequest(end=TunnelEnd()))
        tunnel.end_direction()
        assert (await tunnel.to_rank.take()).data == b"in"  # type: ignore[union-attr]
        assert (await tunnel.next_for_caller()).data == b"out"  # type: ignore[union-attr]
        assert (await tunnel.next_for_caller()).HasField("end")  # type: ignore[union-attr]
        tunnel.end_direction()
        assert await tunnel.next_for_caller() is None
        assert tunnel.why is None
    assert tunnels.count == 0


async def test_a_caller_waits_until_the_rank_takes_what_it_said(hub: ConnectedAgents) -> None:
    with Tunnels(hub).opened(KEY, TARGET, "ada") as tunnel:
        piece = pb.CarryResponse(data=b"x" * (WINDOW_BYTES // 2))
        for _ in range(3):
            await tunnel.send_to_rank(piece)
        waiting = asyncio.ensure_future(tunnel.send_to_rank(piece))
        await asyncio.sleep(0)
        assert not waiting.done()
        tunnel.receive_from_agent(pb.CarryRequest(taken=WINDOW_BYTES))
        assert await waiting


async def test_nobody_waits_for_a_tunnel_that_has_ended(hub: ConnectedAgents) -> None:
    with Tunnels(hub).opened(KEY, TARGET, "ada") as tunnel:
        piece = pb.CarryResponse(data=b"x" * (2 * WINDOW_BYTES))
        await tunnel.send_to_rank(piece)
        waiting = asyncio.ensure_future(tunnel.send_to_rank(piece))
        await asyncio.sleep(0)
        tunnel.end()
        assert not await waiting


async def test_the_agent_hears_what_the_caller_has_taken(hub: ConnectedAgents) -> None:
    with Tunnels(hub).opened(KEY, TARGET, "ada") as tunnel:
        tunnel.receive_from_agent(pb.CarryRequest(data=b"x" * WINDOW_BYTES))
        await tunnel.next_for_caller()
        assert (await tunnel.to_rank.take()).taken == WINDOW_BYTES  # type: ignore[union-attr]


async def test_an_agent_that_brings_more_than_it_may_is_cut_off(hub: ConnectedAgents) -> None:
    with Tunnels(hub).opened(KEY, TARGET, "ada") as tunnel:
        for _ in range(9):
            tunnel.receive_from_agent(pb.CarryRequest(data=b"x" * WINDOW_BYTES))
        assert isinstance(tunnel.why, Unavailable)


async def test_messages_that_hold_nothing_count_too(
    hub: ConnectedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels_module, "_MAX_BYTES", 100)
    with Tunnels(hub).opened(KEY, TARGET, "ada") as tunnel:
        for _ in range(101):
            tunnel.receive_from_agent(pb.CarryRequest(data=b""))
        assert isinstance(tunnel.why, Unavailable)


async def test_a_name_is_good_for_its_own_rank_only(hub: ConnectedAgents) -> None:
    tunnels = Tunnels(hub)
    with tunnels.opened(KEY, TARGET, "ada") as tunnel:
        for key, name in ((RankKey(7, 1, 1), tunnel.name), (KEY, "x")):
            with pytest.raises(NotFound):
                tunnels.accept(key, name)
    with pytest.raises(NotFound):
        tunnels.accept(KEY, tunnel.name)


async def test_the_last_step_of_all_stays_one_that_can_be_told(hub: ConnectedAgents) -> None:
    session = Session()
    hub.attach(KEY, session)
    hub.step_reported(KEY, 2**63 - 1, frozenset({0}))
    told = await session.next()
    assert told is not None
    assert told.suspend_at.step == 2**63 - 1


async def test_tunnels_beyond_the_limit_and_to_ranks_that_are_away_are_refused(
    hub: ConnectedAgents,
) -> None:
    tunnels = Tunnels(hub)
    with (
        tunnels.opened(KEY, TARGET, "ada", limit=1),
        pytest.raises(Exhausted, match="ada has 1 open"),
        tunnels.opened(KEY, TARGET, "ada", limit=1),
    ):
        pass
    with (
        pytest.raises(Unavailable, match="not connected"),
        tunnels.opened(RankKey(8, 1, 0), TARGET, "ada"),
    ):
        pass
    assert tunnels.count == 0


async def test_who_may_not_any_more_is_cut_off(hub: ConnectedAgents) -> None:
    def denied() -> None:
        raise Denied("no more")

    tunnels = Tunnels(hub)
    with (
        tunnels.opened(KEY, TARGET, "ada", denied) as gone,
        tunnels.opened(KEY, TARGET, "bob") as stays,
    ):
        tunnels.check()
        assert isinstance(gone.why, Denied)
        assert await gone.next_for_caller() is None
        assert stays.why is None


@pytest.mark.parametrize(
    ("changed", "open_"),
    [
        pytest.param(task(), True, id="runs"),
        pytest.param(task(RunState.SUSPENDING), True, id="saves"),
        pytest.param(task(RunState.STOPPING), True, id="saves before it stops"),
        pytest.param(task(RunState.BUILDING), False, id="is being built"),
        pytest.param(task(RunState.TERMINATING), False, id="is being ended"),
        pytest.param(task(rank=RankState.STOPPED), False, id="its rank is gone"),
    ],
)
async def test_tunnels_end_with_their_rank(
    hub: ConnectedAgents, changed: Task, open_: bool
) -> None:
    tunnels = Tunnels(hub)
    with tunnels.opened(KEY, TARGET, "ada") as tunnel:
        tunnels.follow(changed)
        assert (tunnel.why is None) is open_
        assert (rank_of(changed, 0) == KEY) is open_
    assert rank_of(changed, 1) is None


def test_leads_add_up() -> None:
    taken = ReceivedBytes()
    assert not taken.add(WINDOW_BYTES // 8)
    assert taken.add(WINDOW_BYTES // 8)
    assert not taken.add(1)
    assert taken.count == WINDOW_BYTES // 4 + 1


async def test_who_sends_less_than_the_lead_never_waits() -> None:
    window = SendWindow()
    async with asyncio.timeout(1):
        for _ in range(10):
            await window.reserve(WINDOW_BYTES // 10)


class TestIdleness:
    """The idle time starts at the latest of four times.

    These are the last activity that the agent reports, the last use through the proxy, and the starts of the run and of
    the server.
    """

    def test_the_newest_counts(self) -> None:
        clock = ManualClock()
        board = ServiceStates(clock)
        now = clock.now()
        running = task()
        assert board.active_at(running) == now
        clock.advance(1000)
        board.report(KEY, [ServiceStatus(name="jupyter")], 300.0)
        assert board.active_at(running) == now + 700
        board.touch(7)
        assert board.active_at(running) == now + 1000
        assert [(s.name, s.rank) for s in board.services(running)] == [("jupyter", 0)]

    def test_who_waits_for_a_service_that_starts_is_there(self) -> None:
        clock = ManualClock()
        board = ServiceStates(clock)
        clock.advance(1000)
        board.report(KEY, [ServiceStatus(name="jupyter", state=SERVICE_STATE_STARTING)], None)
        assert board.active_at(task()) == clock.now()

    @pytest.mark.parametrize(
        ("said", "idle"),
        [
            pytest.param(-5.0, 0.0, id="less than nothing"),
            pytest.param(math.nan, None, id="no number"),
            pytest.param(math.inf, None, id="for ever"),
        ],
    )
    def test_an_agent_that_says_nonsense_decides_nothing(
        self, said: float, idle: float | None
    ) -> None:
        clock = ManualClock()
        board, since = ServiceStates(clock), clock.now()
        clock.advance(1000)
        board.report(KEY, [ServiceStatus(name="jupyter")], said)
        assert board.active_at(task()) == (since if idle is None else clock.now() - idle)

    def test_a_change_of_a_task_looks_at_its_own_ranks_only(self) -> None:
        looked: list[RankKey] = []

        class Watched(RankKey):
            def __getattribute__(self, name: str) -> object:
                if name == "task_id":
                    looked.append(self)
                return super().__getattribute__(name)

        board = ServiceStates(ManualClock())
        board.report(Watched(8, 1, 0), [ServiceStatus(name="jupyter")], None)
        looked.clear()
        board.follow(task())
        assert looked == []

    def test_what_is_over_is_forgotten(self) -> None:
        board = ServiceStates(ManualClock())
        board.report(KEY, [ServiceStatus(name="jupyter")], None)
        board.follow(task(RunState.TERMINATING))
        assert board.services(task())
        waiting = Task(7, "ada", task().spec, TaskState.SUSPENDED, Priority.AUTO, 1.0)
        board.follow(waiting)
        assert not board.services(task())
        assert board.active_at(waiting) is None

    @pytest.mark.parametrize(
        ("given", "active_at", "away"),
        [
            pytest.param(task(idle_timeout=60), 100.0, True, id="long enough"),
            pytest.param(task(idle_timeout=60), 150.0, False, id="not yet"),
            pytest.param(task(), 0.0, False, id="no limit"),
            pytest.param(task(idle_timeout=60), None, False, id="nobody knows"),
            pytest.param(task(RunState.SUSPENDING, idle_timeout=60), 1.0, False, id="leaves"),
        ],
    )
    def test_when_it_is_put_away(self, given: Task, active_at: float | None, away: bool) -> None:
        asked = suspend_if_idle(given, active_at, 170.0)
        assert (asked is not None) is away
        assert asked is None or (asked.hold and "idle_timeout 60 s" in asked.reason)
