"""The log page with a real server: it shows what programs print, in order, and finds texts in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from hai.client.client import Client
from hai.v1.task_spec_pb2 import ProgramSpec, ResourceSpec, TaskSpec
from hai_backend.logs.lines import stamp
from hai_tui.screens.logs.logs_page import LogsPage
from tests.support.servers import RunningServer, ServerProcess


def write_log(
    server: RunningServer, lines: Sequence[bytes], *, task: int = 1, run: int = 1, rank: int = 0
) -> None:
    """Write to the log file of a rank."""
    directory = server.app.settings.home / "logs" / str(task) / str(run)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{rank}.0").open("ab") as file:
        file.writelines(stamp(1_800_000_000 + i) + line + b"\n" for i, line in enumerate(lines))


def bash(name: str, code: str) -> TaskSpec:
    program = ProgramSpec(entrypoint="bash", parameters=["-c", code], entrypoint_executable=True)
    return TaskSpec(version=2, name=name, spec=program, resource=ResourceSpec(node_count=1))


def page(tui) -> LogsPage:
    assert isinstance(tui.app.screen, LogsPage)
    return tui.app.screen


@pytest.fixture
async def ended(submit, client):
    """Task 1, which has printed nothing and is over."""
    task = await submit("train", "true")
    return await client.tasks.wait(task.id, timeout=60)


async def test_what_a_program_prints_comes_by_itself(server, drive, submit) -> None:
    await submit(
        "train", "bash", "-c", "for i in 1 2 3; do echo step $i; sleep 0.2; done; sleep 60"
    )
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("task 1 train", "run 1 of 1", "step 1", "step 3", "● following")


async def test_the_end_of_the_task_is_told(server, drive, submit) -> None:
    await submit("train", "echo", "bye")
    async with drive(server.profile, start="logs train") as tui:
        await tui.shows("bye", "■ the task has ended")


async def test_nothing_printed_is_said(server, drive, ended) -> None:
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("nothing was printed yet")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param("logs 99", "✗ there is no task 99", id="no such task"),
        pytest.param("logs 1 x", "'x' is not a rank", id="no rank"),
    ],
)
async def test_what_can_not_be_opened_is_said(server, drive, ended, words: str, told: str) -> None:
    async with drive(server.profile, start=words) as tui:
        await tui.shows(told)


async def test_codes_of_a_program_do_not_steer_the_terminal(server, drive, ended) -> None:
    write_log(server, [b"\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m \xff\xfe end"])
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("red", "end")
        assert "owned" not in tui.screen()
        assert all(c.isprintable() or c == "\n" for c in tui.screen())


BAR = r"""
printf "start\n\r10 %%"
until [ -e {half} ]; do sleep 0.05; done
printf "\r50 %%"
until [ -e {whole} ]; do sleep 0.05; done
printf "\r100 %%\nafter it\n"
"""


async def test_a_bar_is_drawn_in_place_and_becomes_one_line(
    server, drive, submit, tmp_path
) -> None:
    half, whole = tmp_path / "half", tmp_path / "whole"
    await submit("train", "bash", "-c", BAR.format(half=half, whole=whole))
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("start", "10 %")
        half.touch()
        await tui.shows("50 %")
        assert "10 %" not in tui.screen()
        whole.touch()
        await tui.shows("start", "100 %", "after it", "■ the task has ended")
        assert "50 %" not in tui.screen()


async def test_what_would_be_looked_for_without_end_is_given_up(
    server, drive, ended, tmp_path
) -> None:
    write_log(server, [b"x" * 60, b"xxy"])
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("xxy")
        for key in "/&":
            await tui.press(key, *"(x+)+y", "enter")
            await tui.shows("the search for “(x+)+y” takes too long")
        await tui.press("s", "ctrl+u", *str(tmp_path / "log"), "enter")
        await tui.shows("[USAGE]")
        await tui.press("&", "ctrl+u", *"y$", "enter", "/", "ctrl+u", *"x+y", "enter")
        await tui.shows("xxy", "1 with “x+y”")


async def test_how_logs_look_is_remembered(server, drive, ended) -> None:
    write_log(server, [b"10 %", b"50 %", b"100 %", b"long " * 30 + b"end"])
    async with drive(server.profile, start="logs 1", size=(80, 24)) as tui:
        await tui.shows("100 %")
        await tui.press("w", "t")
    async with drive(server.profile, start="logs 1 0 end", size=(80, 24)) as tui:
        await tui.shows("long end", ":00:03")
        await tui.press("&", "ctrl+u", "enter")
        await tui.shows("10 %", "50 %", "100 %")
        await tui.press("w", "t")
        assert tui.app.preferences.strings("logs") == []


async def test_a_large_log_is_read_as_far_as_it_is_looked_at(server, drive, ended) -> None:
    write_log(server, [b"line %d " % n + b"." * 100 for n in range(60_000)])
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("line 59999")
        window = page(tui).pane.window
        assert len(window) < 10_000
        before = len(window)
        await tui.press("k")
        tui.app.screen.pane.view.to_start()
        await tui.press("pageup")
        await tui.until(lambda: len(window) > before)
        seen = tui.screen().split("line ")[1].split()[0]
        await tui.press("g")
        await tui.shows("line 0 ", "▼ more below")
        assert int(seen) > 50_000
        await tui.press("G")
        await tui.shows("line 59999")
        assert window.bytes <= 5_000_000


async def test_reading_down_from_the_beginning_loses_and_repeats_nothing(
    server, drive, ended
) -> None:
    write_log(server, [b"line %d " % n + b"." * 2000 for n in range(6_000)])
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("line 5999")
        await tui.press("g")
        await tui.shows("line 0 ")
        pane, seen = page(tui).pane, []
        assert pane is not None
        assert pane.reader is not None
        while not pane.reader.attached:
            seen += [int(x.text.split()[1]) for x in pane.window]
            await pane.reader.newer()
        assert sorted(set(seen)) == list(range(6_000))
        numbers = [int(x.text.split()[1]) for x in pane.window]
        assert numbers == list(range(numbers[0], 6_000))


async def test_search_goes_beyond_what_is_held(server, drive, ended) -> None:
    lines = [b"line %d " % n + b"." * 100 for n in range(30_000)]
    lines[5] = b"here is the Needle"
    write_log(server, lines)
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("line 29999")
        await tui.press("/", *"needle", "enter")
        await tui.shows(
            "here is the Needle", "line 4 "
        )  # at the end of the log, the search goes backwards
        await tui.press("n")
        await tui.shows("does not occur below; N searches above")
        await tui.press("/", *"line 2999\\d", "enter")
        await tui.shows("line 29990")
        await tui.press("n")
        await tui.press("n")
        assert page(tui).pane.view.current_hit.text.startswith("line 29992")


async def test_a_filter_shows_only_what_passes(server, drive, ended) -> None:
    write_log(server, [b"loss 1", b"noise", b"LOSS 2"])
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("noise")
        await tui.press("&", *"loss", "enter")
        await tui.until(lambda: "noise" not in tui.screen())
        await tui.shows("loss 1", "LOSS 2", "only 'loss'")


async def test_ranks_are_merged_by_time_or_chosen(server, drive, ended) -> None:
    write_log(server, [b"zero a", b"zero b"])
    write_log(server, [b"one a", b"one b"], rank=1)
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("all ranks", "0│ zero a", "1│ one b")
        screen = tui.screen()
        assert screen.index("zero a") < screen.index("one a") < screen.index("zero b")
        await tui.press("r", "ctrl+u", "1", "enter")
        await tui.until(lambda: "zero" not in tui.screen())
        await tui.shows("rank 1", "one a")


async def test_runs_have_lines_between_them_to_jump_to(server, drive, ended) -> None:
    for run in (1, 2, 3):
        write_log(server, [b"run %d line %d" % (run, n) for n in range(50)], run=run)
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("run 3 line 49")
        await tui.press("[")
        await tui.shows("── run 3", "run 3 line 0")
        await tui.press("[")
        await tui.shows("── run 2", "run 2 line 0")
        await tui.press("]")
        await tui.shows("run 3 line 0")
        await tui.press("]")
        await tui.shows("no other run that way")


async def test_long_lines_scroll_sideways_or_are_folded(server, drive, ended) -> None:
    write_log(server, [b"begin" + b"x" * 5000 + b"end"])
    async with drive(server.profile, start="logs 1 0") as tui:
        await tui.shows("beginxxx")
        await tui.press("/", *"end", "enter")
        await tui.shows("xxxend")
        await tui.press("g", "w")
        await tui.press("G")
        await tui.shows("xxxend")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("x" * 300, "File name too long", id="too long"),
        pytest.param("~nobody-here/a.log", "No such file or directory", id="no such home"),
    ],
)
async def test_a_file_that_can_not_be_is_told(
    server, drive, ended, tmp_path, monkeypatch, name: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("■ the task has ended")
        await tui.press("s", "ctrl+u", *name, "enter")
        await tui.shows("cannot write", told)


async def test_a_pager_that_is_no_command_is_told(server, drive, ended, monkeypatch) -> None:
    monkeypatch.setenv("PAGER", "less '")
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("■ the task has ended")
        await tui.press("p")
        await tui.shows("cannot start less '")


async def test_the_whole_log_is_saved_as_it_was_printed(server, drive, ended, tmp_path) -> None:
    lines = [b"\x1b[31mline\x1b[0m %d" % n for n in range(20_000)]
    write_log(server, lines)
    path = tmp_path / "saved.log"
    async with drive(server.profile, start="logs 1") as tui:
        await tui.shows("line 19999")
        await tui.press("s", "ctrl+u", *str(path), "enter")
        search_pattern = b"".join(line + b"\n" for line in lines)
        await tui.until(lambda: path.exists() and path.read_bytes() == search_pattern)
        await tui.press("s", "ctrl+u", *str(path), "enter")
        await tui.shows("exists already. Replace it?")


async def test_several_logs_are_open_at_once(server, drive, submit, client) -> None:
    for name in ("one", "two"):
        await client.tasks.wait((await submit(name, "echo", f"hello {name}")).id, timeout=60)
    async with drive(server.profile, start="logs 1", size=(100, 40)) as tui:
        await tui.shows("hello one")
        await tui.press("+", "ctrl+u", *"2 0", "enter")
        await tui.shows("hello two", "task 2 two · rank 0")
        await tui.press("tab", "x")
        await tui.until(lambda: "hello one" not in tui.screen())
        await tui.shows("hello two")


async def test_no_stream_is_left_when_the_page_is_closed(server, drive, submit) -> None:
    await submit("train", "bash", "-c", "echo hi; sleep 60")
    async with drive(server.profile) as tui:
        await tui.press(":", *"logs 1", "enter")
        await tui.shows("hi")
        reader = page(tui).pane.reader
        await tui.press("escape")
        await tui.until(lambda: not reader.attached)
        await asyncio.sleep(0)
        assert reader._job is None


async def test_the_server_goes_and_comes_and_no_line_is_lost(tmp_path: Path, drive) -> None:
    server = ServerProcess(tmp_path / "home", "--nodes", "1")
    (tmp_path / "home").mkdir()
    profile = server.start()
    try:
        code = "for i in $(seq 100); do echo step $i; sleep 0.05; done; sleep 60"
        async with Client(profile) as client:
            await client.tasks.create(bash("train", code))
        async with drive(profile, start="logs 1") as tui:
            await tui.shows("step 5")
            server.end(9)
            await tui.shows("cannot reach the server at")
            server.start()
            await tui.shows("step 100")
            pane = page(tui).pane
            assert [x.text for x in pane.window] == [f"step {i}" for i in range(1, 101)]
    finally:
        if server.running:
            server.end()
        server.sweep()
