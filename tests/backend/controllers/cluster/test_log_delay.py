"""How long agents may hold lines: by the number of agents, and by who follows."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hai_backend.controllers.cluster.agents import ConnectedAgents, Session
from hai_backend.controllers.cluster.log_delay import LogDelay
from hai_backend.domain.priority import Priority
from hai_backend.domain.task import Rank, Run, RunState, Task, TaskState
from hai_backend.launch.base import RankKey
from tests.support.builders import a_task


def running(ranks: int) -> Task:
    members = tuple(Rank(index, f"n{index}") for index in range(ranks))
    run = Run(2, RunState.RUNNING, members, created_at=1.0, priority=Priority.NORMAL)
    return replace(a_task(1), state=TaskState.RUNNING, run=run)


def with_agents(count: int) -> tuple[ConnectedAgents, list[Session]]:
    agents, sessions = ConnectedAgents(), [Session() for _ in range(count)]
    for rank, session in enumerate(sessions):
        agents.attach(RankKey(1, 2, rank), session)
    return agents, sessions


@pytest.mark.parametrize(
    ("agents", "followed", "seconds"),
    [
        pytest.param(7, False, 0.01, id="a small cluster"),
        pytest.param(700, False, 1.0, id="a large cluster"),
        pytest.param(20_000, False, 7.0, id="the longest delay"),
        pytest.param(30, True, 0.01, id="a small task that is followed"),
        pytest.param(6_000, True, 2.0, id="a large task that is followed"),
    ],
)
def test_delay_limits_the_number_of_messages(agents: int, followed: bool, seconds: float) -> None:
    connected, _ = with_agents(agents)
    delay = LogDelay(connected, lambda: {1: running(agents)}, lambda task_id: followed)
    assert delay.seconds(1) == pytest.approx(seconds)


def test_only_the_followed_task_has_the_short_delay() -> None:
    connected, _ = with_agents(7_000)
    delay = LogDelay(connected, lambda: {1: running(3)}, lambda task_id: task_id == 1)
    assert (delay.seconds(1), delay.seconds(2)) == (0.001, 7.0)


async def test_attached_agents_learn_at_once_that_their_log_is_followed() -> None:
    connected, sessions = with_agents(1)
    delay = LogDelay(connected, lambda: {1: running(3)}, lambda task_id: True)
    delay.following_begins(1)
    async with asyncio.timeout(5):
        message = await sessions[0].next()
    assert message is not None
    assert message.log_followed.delay_seconds == pytest.approx(0.001)


@pytest.mark.parametrize("tasks", [{}, {1: a_task(1)}], ids=["has ended", "waits"])
def test_a_task_without_a_run_has_no_agents_to_tell(tasks: dict[int, Task]) -> None:
    connected, _ = with_agents(700)
    delay = LogDelay(connected, lambda: tasks, lambda task_id: True)
    delay.following_begins(1)
    assert delay.seconds(1) == 0
