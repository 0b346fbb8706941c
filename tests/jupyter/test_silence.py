"""Silent agents in messages for the panel and in outputs of a notebook."""

from __future__ import annotations

import time

import pytest

from hai.client.fake.server import FakeClient
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_jupyter.handlers.tasks import _explain
from hai_jupyter.live.rows import node_row, task_row
from hai_jupyter.task_view import TaskList, TaskView


@pytest.fixture
async def fake() -> FakeClient:
    """Task 1 runs on two nodes; rank 1 has been silent for 40 s."""
    made = FakeClient(nodes=["n0", "n1"])
    made.world.now = time.time()
    program = ProgramSpec(entrypoint="train.py", workspace="/work")
    spec = TaskSpec(version=2, name="train", spec=program, resource=ResourceSpec(node_count=2))
    await made.tasks.create(spec)
    made.start(1, ["n0", "n1"])
    made.silence(1, 1, seconds=40)
    return made


async def test_rows_say_since_when_and_pages_count(fake: FakeClient) -> None:
    since = round(fake.world.now - 40, 3)
    row = task_row(await fake.tasks.get(1))
    assert row["silent"] == {
        "count": 1,
        "rank": 1,
        "of": 2,
        "since": pytest.approx(since, abs=0.01),
    }
    tenants = [node_row(node)["tenants"][0] for node in await fake.nodes.list()]
    assert [tenant.get("silent") for tenant in tenants] == [None, pytest.approx(since, abs=0.01)]
    fake.hear(1)
    assert "silent" not in task_row(await fake.tasks.get(1))


async def test_a_silent_task_is_explained_although_it_runs(fake: FakeClient) -> None:
    why = await _explain(fake, await fake.tasks.get(1))
    assert [silent["rank"] for silent in why["silent_ranks"]] == [1]
    fake.hear(1)
    assert await _explain(fake, await fake.tasks.get(1)) is None


async def test_what_a_notebook_shows_says_it(fake: FakeClient) -> None:
    task = await fake.tasks.get(1)
    said = "agent of rank 1 silent for 4"  # the number grows while the test runs
    assert repr(TaskView(task)).startswith(f"task 1 train RUNNING: {said}")
    assert said in TaskList([task])._repr_html_()
