"""A deposed server acknowledges no writes, and can become the leader again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import grpc
import pytest

from hai.client.client import Client
from hai.client.errors import Unreachable
from hai.v1 import agent_service_pb2 as pb
from hai.v1.agent_service_pb2_grpc import AgentServiceStub
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec
from hai_backend.auth import tokens
from hai_backend.domain.errors import Conflict, Deposed
from hai_backend.domain.node import Node
from hai_backend.launch.fake import FakeLauncher
from tests.support.builders import a_spec
from tests.support.servers import RunningServer, running_server

pytestmark = pytest.mark.postgres


def spec(name: str) -> TaskSpec:
    return TaskSpec(version=2, name=name, spec=ProgramSpec(entrypoint="train.py"))


async def raise_epoch(url: str) -> None:
    """Increase the epoch, as another server does when it becomes the leader."""
    await execute(url, "UPDATE leader SET epoch = epoch + 1")


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


async def attach(server: RunningServer, channel: grpc.aio.Channel, task_id: int):  # type: ignore[no-untyped-def]
    """Attach an agent and wait until its first line of output is acknowledged. Return the stream."""
    token = tokens.run_token(server.app.context.run_token_key, task_id, 1, 0)
    call = AgentServiceStub(channel).Attach(metadata=(("authorization", f"Bearer {token}"),))
    hello = pb.AgentHello(task_id=task_id, run=1, rank=0, address="127.0.0.1", free_port=4000)
    await call.write(pb.AttachRequest(hello=hello))
    await call.write(pb.AttachRequest(log=pb.LogChunk(offset=0, data=b"first\n")))
    await wait_for_acknowledgement(call, len(b"first\n"))
    return call


async def wait_for_acknowledgement(call, offset: int) -> None:  # type: ignore[no-untyped-def]
    acknowledged = 0
    while acknowledged < offset:
        await call.write(pb.AttachRequest(heartbeat=pb.Heartbeat(number=1, unmeasured=True)))
        while not (answer := await call.read()).HasField("heartbeat"):
            pass
        acknowledged = answer.heartbeat.log_offset


async def test_a_deposed_server_acknowledges_nothing_and_leads_again(
    url: str, tmp_path: Path
) -> None:
    async with (
        running_server(
            tmp_path, launcher=FakeLauncher([Node("n0"), Node("n1")]), database=url
        ) as server,
        Client(server.profile) as client,
        grpc.aio.insecure_channel(server.app.address) as channel,
    ):
        leader = server.app.leader
        assert leader is not None
        task = await client.tasks.create(spec("one"))
        async for answer in client.tasks.watch():
            if any(t.run.number == 1 for t in answer.tasks):
                break
        call = await attach(server, channel, task.id)
        await raise_epoch(url)
        await call.write(pb.AttachRequest(log=pb.LogChunk(offset=6, data=b"second\n")))
        with pytest.raises(Deposed, match="another server leads"):
            await leader.task_manager.submit("admin", a_spec("two"), "")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wait_for_acknowledgement(call, len(b"first\nsecond\n"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(10):
            while server.app.leader in (None, leader):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            while True:
                try:
                    await client.tasks.create(spec("three"))
                    break
                except Unreachable:
                    await asyncio.sleep(0.05)
        names = sorted([task.name async for task in client.tasks.all()])
        assert names == ["one", "three"]
        assert server.app.metrics.registry.get_sample_value("hai_leading") == 1
    assert server.app.metrics.registry.get_sample_value("hai_leading") == 0


async def test_a_deposed_server_ends_if_the_database_is_newer(url: str, tmp_path: Path) -> None:
    """A newer server has migrated the database meanwhile, so this one cannot lead again."""
    launcher = FakeLauncher([Node("n0")])
    async with running_server(tmp_path, launcher=launcher, database=url) as server:
        await execute(url, "UPDATE alembic_version SET version_num = '9999'")
        await raise_epoch(url)
        async with asyncio.timeout(10):
            with pytest.raises(Conflict, match="newer server"):
                await server.app.run_until(asyncio.Event())
