"""Tests of silent agents: which agents of a task or node are silent, and the sentence about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hai.client.fake.server import FakeClient
from hai.client.tasks.silent_agents import (
    SilentAgents,
    duration_text,
    silent_agent_of,
    silent_agents_of_run,
    silent_agents_on_node,
    silent_agents_text,
)
from hai.v1.task_pb2 import Run
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec

TESTDATA = Path(__file__).parents[2] / "testdata"
NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("silence", "english", "chinese"),
    [
        pytest.param(
            SilentAgents((0,), 1, NOW - 40),
            "agent silent for 40 s",
            "agent 已失联 40 s",
            id="the only rank",
        ),
        pytest.param(
            SilentAgents((3,), 8, NOW - 40),
            "agent of rank 3 silent for 40 s",
            "rank 3 的 agent 已失联 40 s",
            id="one of several",
        ),
        pytest.param(
            SilentAgents((1, 2, 5), 8, NOW - 120),
            "agents of 3 of 8 ranks silent, longest for 2 min",
            "8 个 rank 中 3 个的 agent 失联，最长 2 min",
            id="several",
        ),
        pytest.param(
            SilentAgents((0, 1), 2, NOW - 10),
            "agents of all 2 ranks silent, longest for 10 s",
            "全部 2 个 rank 的 agent 失联，最长 10 s",
            id="all",
        ),
        pytest.param(
            SilentAgents((0, 4), 0, NOW - 10),
            "agents of 2 ranks silent, longest for 10 s",
            "2 个 rank 的 agent 失联，最长 10 s",
            id="on a node that knows only its own ranks",
        ),
    ],
)
def test_the_sentence_names_silent_ranks_and_the_duration(
    silence: SilentAgents, english: str, chinese: str
) -> None:
    assert silent_agents_text(silence, NOW) == english
    assert silent_agents_text(silence, NOW, chinese=True) == chinese


def test_the_panel_uses_the_same_sentences() -> None:
    """jupyter_ext/test/model.test.ts uses the same cases."""
    for case in json.loads((TESTDATA / "silence.json").read_text()):
        silence = SilentAgents(tuple(case["ranks"]), case["rank_count"], NOW)
        assert silent_agents_text(silence, NOW + case["seconds"]) == case["english"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"), (0.9, "0 s"), (10, "10 s"), (60, "1 min"), (200, "3 min 20 s"), (3600, "1 h"),
        (7500, "2 h 5 min"), (3601, "1 h"), (4 * 86_400 + 3 * 3600 + 59, "4 d 3 h"),
    ],
)  # fmt: skip
def test_a_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


async def test_silent_agents_are_found_in_tasks_and_on_nodes() -> None:
    fake = FakeClient(nodes=["n0", "n1"])
    spec = TaskSpec(
        version=2,
        name="train",
        spec=ProgramSpec(entrypoint="train.py", workspace="/work"),
        resource=ResourceSpec(node_count=2),
    )
    task = await fake.tasks.create(spec)
    fake.start(task.id, ["n0", "n1"])
    fake.silence(task.id, 1, seconds=40)

    found = silent_agents_of_run((await fake.tasks.get(task.id)).run)
    assert found == SilentAgents((1,), 2, fake.world.now - 40)
    assert silent_agents_on_node(await fake.nodes.get("n0")) == {}
    node = await fake.nodes.get("n1")
    assert silent_agents_on_node(node) == {task.id: SilentAgents((1,), 0, fake.world.now - 40)}
    assert silent_agent_of(node.tenants[0]) == SilentAgents((0,), 1, fake.world.now - 40)
    answer = await fake.tasks.explain(task.id)
    assert [(silent.rank, silent.node) for silent in answer.silent_ranks] == [(1, "n1")]

    fake.hear(task.id)
    assert silent_agents_of_run((await fake.tasks.get(task.id)).run) is None
    assert silent_agents_on_node(await fake.nodes.get("n1")) == {}


def test_a_run_without_ranks_is_not_silent() -> None:
    assert silent_agents_of_run(Run()) is None
