"""Every command that shows a task or a node also shows that its agent is silent."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import suppress

import pytest

from hai_tui.cli.output.watch import watch_tasks
from hai_tui.cli.settings import Settings
from tests.support.virtual_time import run_virtually

NOW = 1_800_003_700.0  # the time of the fixture `hai`


@pytest.fixture(autouse=True)
def _silent(fake) -> None:
    """Rank 1 of task 1 has been silent for 40 s."""
    fake.world.now = NOW
    fake.silence(1, 1, seconds=40)


def test_status_says_it_first_and_in_the_line_of_the_rank(hai) -> None:
    lines = hai("status", "1").out.splitlines()
    assert lines[0] == (
        "agent of rank 1 silent for 40 s; the program may run on unseen (hai why 1)"
    )
    assert any(line.endswith("agent of rank 1 silent for 40 s") for line in lines[1:4])
    ranks = [line for line in lines if line.startswith("   0  n0") or line.startswith("   1  n1")]
    assert "RUNNING  " in ranks[0]
    assert "RUNNING, agent silent for 40 s" in ranks[1]


def test_a_list_says_why(hai) -> None:
    train = next(line for line in hai("list").out.splitlines() if "train" in line)
    assert "RUNNING" in train
    assert train.endswith("agent of rank 1 silent for 40 s")


def test_all_ranks_are_counted(hai, fake) -> None:
    fake.silence(1, 0, seconds=120)
    assert "agents of all 2 ranks silent, longest for 2 min" in hai("list").out


def test_why_says_what_is_silent_and_what_one_can_do(hai) -> None:
    assert hai("why", "1").out.splitlines() == [
        "task 1 (train) is RUNNING: agent of rank 1 silent for 40 s",
        "  the agent of rank 1 on n1 is silent",
        "what you can do:",
        "  end the task: hai stop 1",
    ]


def test_nodes_name_the_task_and_how_long(hai) -> None:
    lines = hai("nodes").out.splitlines()
    assert [line.endswith("task 1: agent silent for 40 s") for line in lines[1:4]] == [
        False,
        True,
        False,
    ]
    assert (
        "  n1  READY  8 GPUs  1 train (alice)  task 1: agent silent for 40 s"
        in hai("nodes", "--tree").out
    )


def test_top_counts_such_tasks(hai) -> None:
    out = hai("top", "--once").out
    assert "running tasks with silent agents: 1" in out
    assert "agent of rank 1 silent for 40 s" in out


def test_programs_get_the_time(hai) -> None:
    since = "2027-01-15T09:01:00Z"
    task = json.loads(hai("status", "1", "--json").out)
    assert [rank["silent_since_time"] for rank in task["run"]["ranks"]] == [None, since]
    why = json.loads(hai("why", "1", "--json").out)
    assert why["silent_ranks"] == [{"rank": 1, "node": "n1", "since_time": since}]
    nodes = json.loads(hai("nodes", "--json").out)["nodes"]
    assert [[t["silent_since_time"] for t in n["tenants"]] for n in nodes] == [[None], [since], []]


def test_what_was_silent_is_shown_no_more_when_it_is_heard(hai, fake) -> None:
    fake.hear(1)
    for command in (["status", "1"], ["list"], ["nodes"], ["top", "--once"], ["why", "1"]):
        assert "silent" not in hai(*command).out


def test_chinese(hai, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAI_LANG", "zh")
    assert "rank 1 的 agent 已失联 40 s；程序可能仍在运行" in hai("status", "1").out
    assert "任务 1：agent 已失联 40 s" in hai("nodes").out


class Screen(io.StringIO):
    """A terminal that records what was written to it."""

    def isatty(self) -> bool:
        return True


def test_a_watched_list_counts_on_without_news(fake, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "140")

    async def watched() -> None:
        began = asyncio.get_running_loop().time()
        clock = lambda: NOW + asyncio.get_running_loop().time() - began  # noqa: E731
        with suppress(TimeoutError):
            async with asyncio.timeout(2.5):
                await watch_tasks(fake, Settings(lambda profile: fake, clock), "")

    run_virtually(watched())
    for seconds in (40, 41, 42):
        assert f"agent of rank 1 silent for {seconds} s" in screen.getvalue()
