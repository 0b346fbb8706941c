"""Streams of agents: what they may do, and what the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from hai.client.client import Client
from hai.v1 import agent_service_pb2 as pb
from hai.v1 import tunnel_service_pb2 as tunnels
from hai.v1.agent_service_pb2_grpc import AgentServiceStub
from hai.v1.container_pb2 import ServiceStatus
from hai.v1.tunnel_pb2 import TunnelTarget
from hai_backend.api.agents import service as agent_service
from hai_backend.api.agents.reports import _EVENTS, AgentReports, _exited, _truncate_services
from hai_backend.api.request import limits
from hai_backend.api.request.limits import LOCK_CHARS, REPORT_CHARS, SERVICES, TAG_CHARS
from hai_backend.auth import tokens
from hai_backend.domain.accounts.user import Quota, User
from hai_backend.domain.node import Node
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import RunState, Task
from hai_backend.launch.base import RankKey
from hai_backend.launch.fake import FakeLauncher
from hai_backend.lifecycle import events as ev
from hai_backend.server.election.roles import SingleServer
from tests.support.builders import a_spec
from tests.support.servers import RunningServer, running_server


async def asked(server: RunningServer, task_id: int, level: int) -> str:
    """Return the answer of the server to rank 0 of the first run."""
    token = tokens.run_token(server.app.context.run_token_key, task_id, 1, 0)
    async with grpc.aio.insecure_channel(server.app.address) as channel:
        metadata = (("authorization", f"Bearer {token}"),)
        call = AgentServiceStub(channel).Attach(metadata=metadata)
        hello = pb.AgentHello(task_id=task_id, run=1, rank=0, address="127.0.0.1", free_port=4000)
        await call.write(pb.AttachRequest(hello=hello))
        await call.write(pb.AttachRequest(priority=pb.PriorityAsked(priority=level)))
        async for response in call:
            if response.WhichOneof("message") == "priority":
                call.cancel()
                return str(response.priority.error)
    raise AssertionError("no answer")


@pytest.mark.parametrize(
    ("level", "error"),
    [
        pytest.param(0, "", id="a level that the owner has"),
        pytest.param(50, "quota of ada in group default at EXTREME_HIGH is 0", id="no quota"),
        pytest.param(7, "7 is no priority", id="no such level"),
    ],
)
async def test_program_cannot_set_a_level_without_quota(
    tmp_path: Path, level: int, error: str
) -> None:
    async with running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server:
        app = server.app.leader
        assert app is not None
        await app.directory.create_user(User("ada"))
        await app.directory.set_quota(
            Quota("ada", False, "default", Priority.EXTREME_HIGH, nodes=0)
        )
        task = await app.task_manager.submit("ada", a_spec("one"), "")
        await _until_running(server, task.id)
        answer = await asked(server, task.id, level)
        assert error in answer
        assert bool(answer) == bool(error)
        after = app.task_manager.unfinished()[task.id].priority
        assert after is (task.priority if error else Priority(level))


async def test_stream_without_hello_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_service, "_HELLO_SECONDS", 0.05)
    async with (
        running_server(tmp_path, launcher=FakeLauncher([])) as server,
        grpc.aio.insecure_channel(server.app.address) as channel,
    ):
        call = AgentServiceStub(channel).Attach()
        with pytest.raises(grpc.aio.AioRpcError, match="no hello within") as refused:
            await call.read()
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE  # so that a slow agent tries again


async def _until_running(server: RunningServer, task_id: int) -> None:
    assert server.app.leader is not None
    task_manager = server.app.leader.task_manager
    version = task_manager.feed.version
    while task_manager.unfinished()[task_id].run is None:
        version = await task_manager.feed.beyond(version)


@asynccontextmanager
async def attached(server: RunningServer) -> AsyncIterator[tuple[Any, Callable[..., Any]]]:
    """The stream of a running rank, and how streams of both sides are opened."""
    assert server.app.leader is not None
    task_manager = server.app.leader.task_manager
    task = await task_manager.submit("admin", a_spec("one"), "")
    await _until_running(server, task.id)
    secrets = {
        "Attach": tokens.run_token(server.app.context.run_token_key, task.id, 1, 0),
        "Carry": tokens.run_token(server.app.context.run_token_key, task.id, 1, 0),
        "OpenTunnel": server.profile.token,
    }
    async with grpc.aio.insecure_channel(server.app.address) as channel:

        def stream(service: str, method: str) -> Any:
            return channel.stream_stream(f"/hai.v1.{service}/{method}")(
                metadata=(("authorization", f"Bearer {secrets[method]}"),), timeout=60
            )

        agent = stream("AgentService", "Attach")
        rank = {"task_id": task.id, "run": 1, "rank": 0}
        hello = pb.AgentHello(**rank, address="127.0.0.1", free_port=4000)
        started = pb.AttachRequest(started=pb.ProgramStarted(pid=1))
        for said in (pb.AttachRequest(hello=hello), started):
            await agent.write(said.SerializeToString())
        version = task_manager.feed.version
        while not _runs(task_manager.unfinished()[task.id]):
            version = await task_manager.feed.beyond(version)
        yield agent, stream


def _runs(task: Task) -> bool:
    return task.run is not None and task.run.state is RunState.RUNNING


async def _asked_to_open(agent: Any) -> str:
    while True:
        told = pb.AttachResponse.FromString(await agent.read())
        if told.WhichOneof("message") == "open_tunnel":
            return told.open_tunnel.tunnel


@pytest.mark.parametrize(
    ("breaks", "code"),
    [
        pytest.param("OpenTunnel", grpc.StatusCode.INVALID_ARGUMENT, id="the caller"),
        pytest.param("Carry", grpc.StatusCode.UNAVAILABLE, id="the agent"),
    ],
)
async def test_tunnel_ends_after_an_undecodable_message(
    tmp_path: Path, breaks: str, code: grpc.StatusCode
) -> None:
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, stream),
    ):
        streams = {"OpenTunnel": stream("TunnelService", "OpenTunnel")}
        opening = tunnels.TunnelOpening(task_id=1, target=TunnelTarget(port=22))
        opened = tunnels.OpenTunnelRequest(open=opening)
        await streams["OpenTunnel"].write(opened.SerializeToString())
        streams["Carry"] = stream("AgentService", "Carry")
        name = await _asked_to_open(agent)
        hello = pb.CarryRequest(hello=pb.CarryHello(task_id=1, run=1, rank=0, tunnel=name))
        await streams["Carry"].write(hello.SerializeToString())
        await streams["OpenTunnel"].read()
        await streams[breaks].write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await streams["OpenTunnel"].read()
    assert ended.value.code() is code


async def test_internal_error_reaches_the_agent_with_an_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mistaken(*_: Any) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(AgentReports, "handle", mistaken)
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        grpc.aio.insecure_channel(server.app.address) as channel,
    ):
        assert server.app.leader is not None
        task = await server.app.leader.task_manager.submit("admin", a_spec("one"), "")
        await _until_running(server, task.id)
        token = tokens.run_token(server.app.context.run_token_key, task.id, 1, 0)
        call = AgentServiceStub(channel).Attach(metadata=(("authorization", f"Bearer {token}"),))
        hello = pb.AgentHello(task_id=task.id, run=1, rank=0, address="127.0.0.1", free_port=4000)
        for said in (pb.AttachRequest(hello=hello), pb.AttachRequest(yielded=pb.Yielded())):
            await call.write(said)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in call:
                pass
    assert ended.value.code() is grpc.StatusCode.INTERNAL


async def answered(agent: Any, number: int) -> bool:
    """Return whether the heartbeat with this number renews the lease. Skip other messages."""
    while True:
        told = pb.AttachResponse.FromString(await agent.read())
        if told.WhichOneof("message") == "heartbeat" and told.heartbeat.number == number:
            return bool(told.heartbeat.lease_renewed)


def beat(number: int) -> bytes:
    return pb.AttachRequest(heartbeat=pb.Heartbeat(number=number)).SerializeToString()


async def test_heartbeats_are_answered_while_earlier_messages_wait_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stalled(*_: Any) -> None:
        await asyncio.Event().wait()

    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
    ):
        monkeypatch.setattr(AgentReports, "handle", stalled)
        await agent.write(pb.AttachRequest(yielded=pb.Yielded()).SerializeToString())
        line = b"2026-11-27T07:00:00.000000Z text\n"
        for number in (1, 2, 3):
            chunk = pb.LogChunk(offset=(number - 1) * len(line), data=line)
            await agent.write(pb.AttachRequest(log=chunk).SerializeToString())
            await agent.write(beat(number))
            assert await answered(agent, number)
        assert server.app.leader is not None
        assert server.app.leader.logs.size(RankKey(1, 1, 0)) == 3 * len(line)


async def test_heartbeats_are_answered_while_a_full_disk_ends_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
    ):
        assert server.app.leader is not None
        server.app.leader.logs._root = Path("/dev/null")  # no file can be created there
        chunk = pb.LogChunk(offset=0, data=b"2026-11-27T07:00:00.000000Z text\n")
        await agent.write(pb.AttachRequest(log=chunk).SerializeToString())
        await agent.write(beat(1))
        assert await answered(agent, 1)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await answered(agent, 2)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_lease_is_renewed_while_the_run_may_continue_and_this_server_leads(
    tmp_path: Path,
) -> None:
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
    ):
        app = server.app
        await agent.write(beat(1))
        assert await answered(agent, 1)
        app._election = UncertainServer()  # type: ignore[assignment]
        await agent.write(beat(2))
        assert not await answered(agent, 2)
        app._election = SingleServer()
        assert app.leader is not None
        await app.leader.task_manager.apply(1, ev.Yielded(1, 0))
        await agent.write(beat(3))
        assert not await answered(agent, 3)


async def test_server_that_slept_appends_nothing_to_a_log(tmp_path: Path) -> None:
    """Another server may lead and append to the same file."""
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
    ):
        server.app._election = UncertainServer()  # type: ignore[assignment]
        chunk = pb.LogChunk(offset=0, data=b"2026-11-27T07:00:00.000000Z text\n")
        await agent.write(pb.AttachRequest(log=chunk).SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await answered(agent, 1)
        assert server.app.leader is not None
        assert server.app.leader.logs.size(RankKey(1, 1, 0)) == 0
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


class UncertainServer(SingleServer):
    """Replaces the election of a server that was asleep."""

    def is_certain(self) -> bool:
        return False


async def test_old_agents_get_no_heartbeat_answer_and_unmeasured_beats_are_not_counted(
    tmp_path: Path,
) -> None:
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
    ):
        assert server.app.leader is not None
        usage, key = server.app.leader.usage, RankKey(1, 1, 0)
        unmeasured = pb.Heartbeat(number=1, unmeasured=True)
        for said in (
            pb.AttachRequest(heartbeat=pb.Heartbeat(unmeasured=True)),
            pb.AttachRequest(heartbeat=unmeasured),
        ):
            await agent.write(said.SerializeToString())
        told = pb.AttachResponse(welcome=pb.AgentWelcome())
        while told.WhichOneof("message") in ("welcome", "go"):
            told = pb.AttachResponse.FromString(await agent.read())
        assert told.heartbeat.number == 1
        assert usage.recent(key) is None
        await agent.write(beat(2))
        await answered(agent, 2)
        assert usage.recent(key) is not None


async def test_agent_is_silent_until_it_sends_a_message(tmp_path: Path) -> None:
    async with running_server(
        tmp_path, launcher=FakeLauncher([Node("n0")]), agent_heartbeat=0.05
    ) as server:
        leader = server.app.leader
        assert leader is not None
        leader.agent_silence._grace_until = 0.0  # skip the grace period after the start of a server
        async with attached(server) as (agent, _):
            for silent in (True, False):
                version = leader.task_manager.feed.version
                while _is_silent(leader.task_manager.unfinished()[1]) is not silent:
                    version = await leader.task_manager.feed.beyond(version)
                await agent.write(beat(1))


def _is_silent(task: Task) -> bool:
    assert task.run is not None
    return task.run.ranks[0].silent_since is not None


def test_texts_that_agents_report_are_truncated() -> None:
    key = RankKey(1, 1, 0)
    exited = _exited(key, pb.ProgramExited(exit_code=1, last_lines="x" * 100_000 + "end"))
    assert (len(exited.last_lines), exited.last_lines[-3:]) == (REPORT_CHARS, "end")
    started = pb.AttachRequest(started=pb.ProgramStarted(environment_lock="k" * 100_000))
    assert len(_EVENTS["started"](key, started).environment_lock) == LOCK_CHARS


def test_service_reports_of_agents_are_truncated() -> None:
    status = ServiceStatus(
        name="n" * 1000, type="tcp", message="m" * 100_000, url="https://elsewhere"
    )
    services = _truncate_services(pb.ServicesReported(services=[status] * 100)).services
    assert len(services) == SERVICES
    assert (len(services[0].name), len(services[0].message)) == (TAG_CHARS, REPORT_CHARS)
    assert services[0].url == ""  # users would open it


async def test_agents_cannot_set_the_url_of_a_service(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
    ):
        assert server.app.leader is not None
        board = server.app.leader.service_states
        status = ServiceStatus(name="web", type="tcp", url="https://elsewhere")
        report = pb.AttachRequest(services=pb.ServicesReported(services=[status]))
        version = board.feed.version
        await agent.write(report.SerializeToString())
        await board.feed.beyond(version)
        (task,) = server.app.leader.task_manager.unfinished().values()
        assert [(s.name, s.url) for s in board.services(task)] == [("web", "")]


async def test_agent_that_sends_too_much_is_read_slowly_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AGENT_MESSAGES_AT_ONCE", 0.0)
    monkeypatch.setattr(limits, "AGENT_MESSAGES_PER_SECOND", 1000.0)
    beat = pb.AttachRequest(heartbeat=pb.Heartbeat(cpus=1.0)).SerializeToString()
    said = pb.AttachRequest(whole_life_state=pb.WholeLifeStateChanged(value=7)).SerializeToString()
    with capture_logs() as logs:
        async with (
            running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
            attached(server) as (agent, _),
        ):
            for _ in range(20):
                await agent.write(beat)
            await agent.write(said)
            told = ""
            while told != "whole_life_state":
                told = str(pb.AttachResponse.FromString(await agent.read()).WhichOneof("message"))
            agent.cancel()
    slowed = [line for line in logs if "sends too many messages" in line["event"]]
    assert [line["rank"] for line in slowed] == ["1-1-0"]


LINE = b"2026-11-27T07:00:00.000000Z text\n"


async def told(agent: Any, kind: str) -> Any:
    """Return the next message of this kind. Skip other messages."""
    while True:
        response = pb.AttachResponse.FromString(await agent.read())
        if response.WhichOneof("message") == kind:
            return getattr(response, kind)


async def test_lines_in_a_heartbeat_are_stored_and_acknowledged_by_a_later_answer(
    tmp_path: Path,
) -> None:
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
    ):
        answer = pb.HeartbeatAnswered()
        for number in (1, 2):
            chunk = pb.LogChunk(offset=(number - 1) * len(LINE), data=LINE)
            heartbeat = pb.Heartbeat(number=number, unmeasured=True, log=chunk)
            await agent.write(pb.AttachRequest(heartbeat=heartbeat).SerializeToString())
            answer = await told(agent, "heartbeat")
            assert 0 < answer.log_delay_seconds < 0.01, "one agent is attached"
            assert 0 < answer.return_within_seconds < 0.01
        async with asyncio.timeout(10):
            for number in range(3, 100):
                if answer.log_offset == 2 * len(LINE):
                    break
                await agent.write(beat(number))
                answer = await told(agent, "heartbeat")
        assert answer.log_offset == 2 * len(LINE)
        assert server.app.leader is not None
        assert server.app.leader.logs.size(RankKey(1, 1, 0)) == 2 * len(LINE)


@pytest.mark.parametrize(
    "message",
    [
        pb.AttachRequest(checkpoint=pb.CheckpointSaved(step=1, staged=True)),
        pb.AttachRequest(exited=pb.ProgramExited(staged=True)),
    ],
    ids=["saved", "exited"],
)
async def test_what_a_rank_has_staged_is_written(tmp_path: Path, message: pb.AttachRequest) -> None:
    launcher = FakeLauncher([Node("n0")])
    async with (
        running_server(tmp_path, launcher=launcher) as server,
        attached(server) as (agent, _),
    ):
        await agent.write(message.SerializeToString())
        await agent.write(pb.AttachRequest(exited=pb.ProgramExited()).SerializeToString())
        async with asyncio.timeout(10):
            await told(agent, "exit_recorded")
        assert launcher.writes == [RankKey(1, 1, 0)]


async def test_much_output_is_acknowledged_at_once(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
    ):
        data = LINE * 2_000
        for number in range(5):
            chunk = pb.LogChunk(offset=number * len(data), data=data)
            await agent.write(pb.AttachRequest(log=chunk).SerializeToString())
        async with asyncio.timeout(10):
            acknowledged = await told(agent, "log_acknowledged")
        assert acknowledged.offset > 256 * 1024


async def test_agents_learn_that_somebody_follows_their_log(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, launcher=FakeLauncher([Node("n0")])) as server,
        attached(server) as (agent, _),
        Client(server.profile) as client,
    ):
        assert server.app.leader is not None
        logs = server.app.leader.logs
        async for _ in client.logs.tail(1):
            pass
        assert not logs.is_followed(1), "a call that only reads does not follow"
        async with aclosing(client.logs.tail(1, follow=True)) as first:
            await anext(first)
            async with asyncio.timeout(10):
                await told(agent, "log_followed")
            assert logs.is_followed(1)
            async with aclosing(client.logs.tail(1, follow=True)) as second:
                await anext(second)
                await agent.write(beat(1))
                response = pb.AttachResponse.FromString(await agent.read())
                assert response.HasField("heartbeat"), "the second follower changes nothing"
        async with asyncio.timeout(10):
            while logs.is_followed(1):  # noqa: ASYNC110 - the server notices it soon
                await asyncio.sleep(0.01)
