"""Explanations of running tasks with silent agents, and the silent ranks of nodes."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from hai_backend.api.nodes.convert import entry_to_proto
from hai_backend.api.nodes.tenants import Entry, tenants_by_node
from hai_backend.api.request.convert_time import to_timestamp
from hai_backend.api.scheduling.explain_response import Facts, explain_response
from hai_backend.domain.node import Node, NodeState
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, RankState, Run, RunState, Task, TaskState
from tests.support.builders import a_task

HEARD = {1: 60.0, 2: 30.0}
"""Two of three agents were last heard then."""


def silent_task(state: RunState = RunState.RUNNING) -> Task:
    ranks = tuple(
        Rank(index, f"n{index}", RankState.RUNNING, silent_since=HEARD.get(index))
        for index in range(3)
    )
    run = Run(number=1, state=state, ranks=ranks, priority=Priority.NORMAL, created_at=0.0)
    return replace(a_task(12), state=TaskState.RUNNING, run=run)


def facts(task: Task, lease: float = inf, nodes: tuple[Node, ...] = ()) -> Facts:
    return Facts(
        task=task,
        wait=None,
        unfinished={task.id: task},
        nodes={node.name: node for node in nodes},
        quotas=(),
        history=(),
        now=100.0,
        can_see=lambda other: True,
        lease_seconds=lease,
    )


def test_silent_ranks_are_named_with_the_time_of_their_last_message() -> None:
    answer = explain_response(facts(silent_task()))
    assert [(r.rank, r.node, r.since_time) for r in answer.silent_ranks] == [
        (2, "n2", to_timestamp(30.0)),
        (1, "n1", to_timestamp(60.0)),
    ]
    assert list(answer.constraints[:2]) == [
        "the agent of rank 2 on n2 was last heard at 1970-01-01 00:00:30 UTC",
        "the agent of rank 1 on n1 was last heard at 1970-01-01 00:01:00 UTC",
    ]
    assert "the program may still run" in answer.constraints[2]
    assert "nodes n1, n2 (hai nodes)" in answer.suggestions[1]
    assert answer.suggestions[2] == "end the task: hai stop 12"


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        pytest.param(
            inf, "until the agent connects again, the node is lost or somebody", id="none"
        ),
        pytest.param(580.0, "whose heartbeats are not answered for 580 s ends", id="of a pod"),
    ],
)
def test_explanation_says_what_the_platform_does_and_when(lease: float, said: str) -> None:
    last = explain_response(facts(silent_task(), lease)).constraints[-1]
    assert last.startswith("the task keeps its nodes, and no second program is started, until")
    assert said in last


@pytest.mark.parametrize(
    ("state", "count", "stops"),
    [
        pytest.param(RunState.RUNNING, 3, True, id="running"),
        pytest.param(RunState.SUSPENDING, 2, True, id="suspending"),
        pytest.param(RunState.STOPPING, 1, False, id="stopping"),
        pytest.param(RunState.TERMINATING, 1, False, id="terminating"),
    ],
)
def test_run_that_ends_gets_no_advice_to_wait_or_stop(
    state: RunState, count: int, stops: bool
) -> None:
    answer = explain_response(facts(silent_task(state)))
    assert len(answer.suggestions) == count
    assert any("hai stop" in line for line in answer.suggestions) is stops
    leaves = answer.constraints[-1].startswith("its nodes stay reserved until every")
    assert leaves is (state is not RunState.RUNNING)


def test_node_that_is_not_ready_is_named() -> None:
    node = Node("n1", gpus=8, state=NodeState.NOT_READY, reason="the kubelet is silent")
    answer = explain_response(facts(silent_task(), nodes=(node, Node("n2", gpus=8))))
    assert "node n1 is not ready: the kubelet is silent" in answer.constraints


def test_only_some_of_many_silent_ranks_are_named() -> None:
    task = silent_task()
    assert task.run is not None
    ranks = tuple(Rank(i, f"n{i}", RankState.RUNNING, silent_since=9.0) for i in range(8))
    answer = explain_response(facts(replace(task, run=replace(task.run, ranks=ranks))))
    assert answer.constraints[5] == "3 more agents are silent"
    assert len(answer.silent_ranks) == 8


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(a_task(12), id="it waits"),
        pytest.param(replace(silent_task(), state=TaskState.SUSPENDED), id="it has left"),
    ],
)
def test_task_without_agents_has_no_silent_ranks(task: Task) -> None:
    answer = explain_response(facts(task))
    assert list(answer.silent_ranks) == []
    assert not any("agent" in line for line in answer.constraints)


def test_nodes_list_their_silent_ranks() -> None:
    tenants = tenants_by_node([silent_task()])
    shown = {
        name: entry_to_proto(1, Entry(Node(name, gpus=8), tuple(held)), lambda task: True)
        for name, held in tenants.items()
    }
    assert not shown["n0"].tenants[0].HasField("silent_since_time")
    assert shown["n1"].tenants[0].silent_since_time == to_timestamp(60.0)
    assert shown["n1"].tenants[0].task_id == 12
