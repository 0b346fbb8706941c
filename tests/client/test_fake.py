"""Tests of the fake client: a test can change its cluster as a server would."""

from __future__ import annotations

import asyncio

import pytest

from hai.client.errors import Ambiguous, Unreachable
from hai.client.fake.server import FakeClient
from hai.v1.task_pb2 import (
    TASK_OUTCOME_FAILED,
    TASK_OUTCOME_SUCCEEDED,
    TASK_STATE_FINISHED,
    TASK_STATE_RUNNING,
    TASK_STATE_SUSPENDED,
)
from hai.v1.task_spec_pb2 import ProgramSpec, TaskSpec

SPEC = TaskSpec(version=2, name="bert", spec=ProgramSpec(entrypoint="a.py"))


async def test_a_task_can_be_started_suspended_and_finished() -> None:
    client = FakeClient(nodes=["n0", "n1"])
    task = await client.tasks.create(SPEC)
    assert client.start(task.id, ["n1"]).state == TASK_STATE_RUNNING
    assert [t.task_id for t in (await client.nodes.get("n1")).tenants] == [task.id]
    client.advance(60)
    suspended = client.suspended(task.id, "for task 2")
    assert (suspended.state, suspended.suspend_count) == (TASK_STATE_SUSPENDED, 1)
    assert suspended.run_seconds == 60
    client.start(task.id, ["n0"])
    ended = client.finish(task.id)
    assert (ended.state, ended.outcome) == (TASK_STATE_FINISHED, TASK_OUTCOME_SUCCEEDED)
    runs = await client.tasks.runs(task.id)
    assert [(r.number, r.ranks[0].node) for r in runs] == [(1, "n1"), (2, "n0")]
    assert not (await client.nodes.get("n0")).tenants


async def test_wait_notices_changes_by_the_test() -> None:
    client = FakeClient()
    task = await client.tasks.create(SPEC)
    running = asyncio.create_task(client.tasks.wait(task.id, "running"))
    finished = asyncio.create_task(client.tasks.wait(task.id))
    await asyncio.sleep(0)
    client.start(task.id)
    assert (await running).state == TASK_STATE_RUNNING
    client.finish(task.id, TASK_OUTCOME_FAILED, "exit code 1")
    assert (await finished).reason == "exit code 1"


async def test_logs_are_followed_until_the_end() -> None:
    client = FakeClient()
    task = await client.tasks.create(SPEC)
    client.start(task.id, ["n0", "n1"])
    client.print(task.id, "zero")
    client.print(task.id, "one", rank=1)
    tail = client.logs.tail(task.id, ranks=[1], follow=True)
    assert [line.text for line in (await anext(tail)).lines] == ["one"]
    client.print(task.id, "more", rank=1)
    client.finish(task.id)
    assert [line.text async for answer in tail for line in answer.lines] == ["more"]
    last = client.logs.tail(task.id, tail_lines=1)
    assert [line.text async for answer in last for line in answer.lines] == ["more"]


async def test_streams_survive_the_loss_of_the_server() -> None:
    client = FakeClient()
    task = await client.tasks.create(SPEC)
    watch = client.tasks.watch()
    await anext(watch)
    following = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    client.lose()
    with pytest.raises(Unreachable):
        await client.tasks.get(task.id)
    client.recover()
    client.change(task.id, starred=True)
    assert [t.starred for t in (await following).tasks] == [True]


async def test_answers_are_copies() -> None:
    client = FakeClient()
    task = await client.tasks.create(SPEC)
    task.name = "changed"
    assert (await client.tasks.get(task.id)).name == "bert"


async def test_a_name_of_several_other_users_is_ambiguous() -> None:
    client = FakeClient(user="operator")
    ids = []
    for user in ("alice", "bob"):
        client.world.user = user
        ids.append((await client.tasks.create(SPEC)).id)
    client.world.user = "operator"
    with pytest.raises(Ambiguous, match="of alice") as caught:
        await client.tasks.resolve("bert")
    assert [(c.id, c.user) for c in caught.value.candidates] == [(ids[1], "bob"), (ids[0], "alice")]
    client.world.user = "alice"
    assert await client.tasks.resolve("bert") == ids[0]
