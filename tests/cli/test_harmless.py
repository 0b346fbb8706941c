"""Output of programs is sanitized for a terminal, and unchanged in a file."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from errno import ENOSPC
from typing import Any

import pytest

from hai.v1.log_service_pb2 import LogLine, TailLogsResponse
from hai_tui.cli.output.follow import LogQuery, _render, print_lines

EVIL = "\x1b]0;title\x07a\x1b[2J\x1b]52;c;cGF5\x07\x1b[31mred"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_and_nothing_else_that_steers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    assert _render(LogLine(text=EVIL), LogQuery()) == "\x1b[Ka\x1b[31mred\x1b[m\n"


def test_a_file_gets_what_was_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert _render(LogLine(text=EVIL), LogQuery()) == f"{EVIL}\n"


async def test_a_log_that_cannot_be_written_any_more_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []

    class Logs:
        async def tail(self, id: int, **_: object) -> AsyncGenerator[TailLogsResponse]:
            try:
                yield TailLogsResponse(lines=[LogLine(text="a")])
            finally:
                left.append(id)

    class Client:
        logs = Logs()

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(OSError, match="No space"):
        await print_lines(Client(), 12, LogQuery(), follow=False)  # type: ignore[arg-type]
    assert left == [12]


@pytest.mark.parametrize(
    ("out", "printed"),
    [
        pytest.param(Screen(), "\x1b[K1 %\x1b[m\r\x1b[K9 %\x1b[m\n", id="a terminal"),
        pytest.param(io.StringIO(), "9 %\n", id="a pipe"),
    ],
)
async def test_bars_move_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, out: io.StringIO, printed: str
) -> None:
    class Logs:
        async def tail(self, id: int, **_: object) -> AsyncGenerator[TailLogsResponse]:
            yield TailLogsResponse(lines=[LogLine(text="1 %", redraw=True), LogLine(text="9 %")])

    class Client:
        logs = Logs()

    monkeypatch.setattr("sys.stdout", out)
    await print_lines(Client(), 12, LogQuery(), follow=True)  # type: ignore[arg-type]
    assert out.getvalue() == printed
    monkeypatch.setattr("sys.stdout", json := Screen())
    await print_lines(Client(), 12, LogQuery(output="json"), follow=True)  # type: ignore[arg-type]
    assert [line.count("redraw") for line in json.getvalue().splitlines()] == [1]


def test_a_full_disk_is_told_with_what_helps(
    hai: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("hai_tui.cli.commands.tasks.list.show", full)
    told = hai("list").err
    assert "hai: cannot write: No space left on device\n" in told
    assert "hint: the disk or your quota is full" in told
