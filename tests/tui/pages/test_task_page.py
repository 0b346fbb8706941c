"""The page of a task: failure, reason for waiting, timeline, yaml, and the comparison of two tasks."""

from __future__ import annotations

import pytest

from hai.client.tasks.diagnosis import failed_ranks, first_failed_rank
from hai.client.text.formatting import STOP_CODES
from hai.v1.task_pb2 import (
    RANK_STATE_FAILED,
    RANK_STATE_STOPPED,
    RANK_STATE_STOPPED_TERMINATING,
    TASK_OUTCOME_SUCCEEDED,
    Rank,
    Run,
)
from hai.v1.task_spec_pb2 import AfterSpec, OptionsSpec
from hai_tui.screens.task.text import run_end_text
from hai_tui.tasks.descriptions import likely_cause


def rank(index: int, code: int, ended: int) -> Rank:
    made = Rank(index=index, exit_code=code)
    made.end_time.seconds = ended
    return made


def test_the_first_rank_to_fail_is_not_one_that_was_ended_because_of_it() -> None:
    run = Run(ranks=[rank(0, 143, 10), rank(1, 1, 12), rank(2, 1, 11), rank(3, 0, 5)])
    found = first_failed_rank(run)
    assert found is not None
    assert found.index == 2
    assert first_failed_rank(Run(ranks=[rank(0, 0, 1)])) is None
    alone = first_failed_rank(Run(ranks=[rank(0, 137, 3)]))
    assert alone is not None
    assert alone.index == 0


def test_a_rank_that_was_told_to_end_has_not_failed() -> None:
    told = Rank(index=0, exit_code=143, state=RANK_STATE_STOPPED)
    leaves = Rank(index=1, exit_code=137, state=RANK_STATE_STOPPED_TERMINATING)
    assert first_failed_rank(Run(ranks=[told, leaves])) is None
    failed = Rank(index=2, exit_code=1, state=RANK_STATE_FAILED)
    assert failed_ranks(Run(ranks=[told, leaves, failed])) == [failed]


@pytest.mark.parametrize(
    ("code", "lines", "told"),
    [
        pytest.param(1, ["torch.OutOfMemoryError: CUDA out of memory."], "GPU's memory", id="cuda"),
        pytest.param(1, ["ModuleNotFoundError: No module named 'apex'"], "package", id="module"),
        pytest.param(1, ["NCCL error: unhandled", "bye"], "NCCL", id="an earlier line"),
        pytest.param(137, [], "SIGKILL", id="killed"),
        pytest.param(127, ["sh: foo: not found"], "command was not found", id="127"),
        pytest.param(1, ["bye"], "", id="nothing is known"),
    ],
)
def test_likely_causes(code: int, lines: list[str], told: str) -> None:
    found = likely_cause(code, lines)
    assert told in found
    assert bool(told) == bool(found)


def test_every_bit_of_a_stop_code_has_a_name() -> None:
    assert run_end_text(Run(stop_code=16 + 16384)) == "INTERRUPT+NODE_FAILURE"
    assert run_end_text(Run(stop_code=0)) == ""
    assert run_end_text(Run(stop_code=4)) == "4"
    assert run_end_text(Run(stop_code=sum(STOP_CODES))).count("+") == len(STOP_CODES) - 1


async def test_a_failed_task_says_which_rank_why_and_what_next(
    server, drive, client, submit
) -> None:
    task = await submit(
        "bert", "sh", "-c", "echo no module; echo \"No module named 'apex'\"; exit 3"
    )
    await client.tasks.wait(task.id, timeout=60)
    async with drive(server.profile, size=(110, 40), start="task 1") as tui:
        await tui.shows("✗ FAILED  1 bert", "rank 0 on node", "exit code 3", "│ No module named")
        await tui.shows("likely cause: a Python package is missing", "l shows its log")
        await tui.press("tab")
        await tui.shows("[ranks]", "✗ FAILED", "node1")
        await tui.press("tab")
        await tui.shows("[runs]", "■ ENDED", "FAILED · rank 0 on")
        await tui.press("tab")
        await tui.shows("[timeline]", "TaskSubmitted", "RunPlaced")
        await tui.press("k", "G")
        await tui.shows(" TaskSubmitted: 1 node")
        await tui.press("y")
        await tui.shows("[yaml]", "entrypoint: sh")
        await tui.press("u")
        await tui.shows("suspend: the task has ended")
        await tui.press("shift+tab", "shift+tab")
        await tui.shows(
            "[why]", "exit code 3", "│ No module named", "likely cause: a Python package is missing"
        )


async def test_a_waiting_task_says_why_with_numbers_and_what_would_help(
    server, drive, submit
) -> None:
    await submit("runs", nodes=2)
    await submit("waits", nodes=2)
    async with drive(server.profile, size=(120, 50), start="task waits") as tui:
        await tui.shows("○ WAITING_INIT  2 waits", "place 1 in the queue of default, at NORMAL")
        await tui.press("shift+tab", "shift+tab", "shift+tab")
        await tui.shows("[why]", "What stands in the way", "What would help", "Nodes that suit it")


async def test_a_suspended_task_says_why_also_while_it_waits(server, drive, submit, client) -> None:
    task = await submit("polite", "sleep", "60")
    await client.tasks.wait(task.id, "running", timeout=30)
    await client.tasks.suspend(task.id, hold=True)
    async with drive(server.profile, size=(110, 40), start="task 1") as tui:
        await tui.shows("1 polite", "Why it was suspended", "suspended by admin")


async def test_the_page_follows_the_task(server, drive, submit) -> None:
    await submit("train")
    async with drive(server.profile, start="task 1") as tui:
        await tui.shows("● RUNNING  1 train")
        await tui.press("ctrl+d", "p")
        await tui.shows("■ STOPPED  1 train")


async def test_the_yaml_is_saved_and_replaces_nothing_unasked(
    server, drive, submit, tmp_path, monkeypatch
) -> None:
    await submit("a", "sleep", "60")
    monkeypatch.chdir(tmp_path)
    async with drive(server.profile, size=(100, 40), start="task 1") as tui:
        await tui.shows("1 a")
        await tui.press("E")
        await tui.shows("saved task-1.yaml")
        (tmp_path / "task-1.yaml").write_text("mine")
        await tui.press("E")
        await tui.shows("task-1.yaml exists already. Replace it?")
        await tui.press("n")
        assert (tmp_path / "task-1.yaml").read_text() == "mine"


async def test_two_specs_are_compared(server, drive, submit) -> None:
    await submit("a", "sleep", "60")
    await submit("b", "sleep", "90")
    async with drive(server.profile, size=(100, 40)) as tui:
        await tui.shows("2 tasks")
        await tui.press("space", "space", "=")
        await tui.shows("- name: a", "+ name: b", "'90'", "'60'", "  version: 2")


@pytest.mark.parametrize("id", ["99", "9" * 23, "²"])
async def test_a_task_that_is_not_there_is_said_so(server, drive, id: str) -> None:
    async with drive(server.profile, start=f"task {id}") as tui:
        await tui.shows(f"there is no task {id}, or you may not see it")


@pytest.mark.parametrize("page", ["logs", "services", "submit", "diff 1"])
async def test_a_number_that_no_task_can_have_is_told(server, drive, submit, page: str) -> None:
    await submit("a", "true")
    async with drive(server.profile, start=f"{page} {'9' * 23}") as tui:
        await tui.shows(f"there is no task {'9' * 23}")


async def test_keys_lead_along_a_chain_of_tasks(server, drive, client, submit, program) -> None:
    first = await submit("prepare")
    follows = OptionsSpec(after=[AfterSpec(task=first.id)])
    async with drive(server.profile, start=f"task {first.id}") as tui:
        await tui.shows("prepare", "nodes held")
        await tui.press(">")
        await tui.shows("no task waits for it")
        for name in ("train", "other"):
            await client.tasks.create(program(name, options=follows))
        await tui.shows("waited for by  2 train, 3 other")
        await tui.press("ctrl+d")
        await tui.shows("Tasks that depend on it: 2 train, 3 other.")
        await tui.press("escape", ">")
        await tui.shows("id:2,3")
        await tui.press("<")  # go to what the task under the cursor waits for
        await tui.shows("waited for by  2 train")
        await client.tasks.stop(first.id, TASK_OUTCOME_SUCCEEDED)
        await tui.press(*":task 2", "enter")
        await tui.shows("RUNNING")
        await tui.press("<")  # the task runs, but its page still leads to the task before it
        await tui.until(lambda: tui.app.screen.chosen_ids() == [first.id])
