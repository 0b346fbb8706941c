"""`hai top --once` prints the cluster on one page; `hai tui` needs a terminal."""

from __future__ import annotations

import json

import pytest

from hai.v1.node_pb2 import Group
from hai_tui.cli.commands.cluster.tui import page_line


def test_top_shows_groups_running_tasks_and_the_queue(hai) -> None:
    result = hai("top", "--once")
    assert result.code == 0, result.err
    assert "default: 2 of 2 nodes held (100%)" in result.out
    assert "1 task runs, 1 waits" in result.out
    assert "train" in result.out
    assert "wants 4 nodes" not in result.out  # only -o wide shows the message


def test_top_counts_what_waits_behind_the_listed_queue(hai, monkeypatch) -> None:
    monkeypatch.setattr("hai_tui.cli.output.output.QUEUE_TASKS", 1)

    async def groups() -> list[Group]:
        return [Group(name="default", waiting_tasks=4995)]

    monkeypatch.setattr(hai.client.nodes, "groups", groups)
    result = hai("top", "--once")
    assert "1 task runs, 4995 wait" in result.out
    assert "only the first 1 are listed" in result.err


def test_top_for_a_program(hai) -> None:
    page = json.loads(hai("top", "--once", "--json").out)
    assert set(page) == {"groups", "running", "queue"}
    assert [task["name"] for task in page["running"]] == ["train"]
    assert [task["name"] for task in page["queue"]] == ["eval"]


@pytest.mark.parametrize("command", [["tui"], ["tui", "12"], ["top"]], ids=" ".join)
def test_the_app_needs_a_terminal_and_says_what_does_not(hai, command: list[str]) -> None:
    result = hai(*command)
    assert result.code == 2
    assert "hai top --once" in result.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param((), "tasks", id="nothing"),
        pytest.param(("12",), "task 12", id="a task"),
        pytest.param(("logs", "12"), "logs 12", id="a page"),
    ],
)
def test_words_are_what_a_colon_takes(words: tuple[str, ...], told: str) -> None:
    assert page_line(words) == told


def test_status_without_a_task_shows_the_cluster_and_ones_own_tasks(hai) -> None:
    done = hai("status")
    assert (done.code, done.err) == (0, "")
    above, below = done.out.split("\n\n")
    assert above.splitlines()[0] == "default: 2 of 2 nodes held (100%)"
    assert above.splitlines()[-1].startswith("1 task runs, ")
    assert [line.split()[:3] for line in below.splitlines()[1:]] == [["1", "train", "alice"]]


def test_status_without_a_task_for_programs(hai) -> None:
    page = json.loads(hai("status", "--json").out)
    assert [task["name"] for task in page["tasks"]] == ["train"]
    assert [group["name"] for group in page["groups"]] == ["default", "extra"]
    assert hai("status", "-q").out == "1\n"


def test_status_of_somebody_without_tasks(hai) -> None:
    hai("stop", "train", "-y")
    done = hai("status")
    assert (done.code, "you have no unfinished tasks" in done.err) == (0, True)


@pytest.mark.parametrize("options", [("--wait",), ("--timeout", "5s")], ids=" ".join)
def test_waiting_needs_a_task(hai, options: tuple[str, ...]) -> None:
    """`hai status --wait $(hai list -q --tag gone)` must not pass for success."""
    done = hai("status", *options)
    assert (done.code, done.out) == (2, "")
    assert "--wait and --timeout need a TASK" in done.err
