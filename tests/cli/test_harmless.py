"""What programs print goes to a terminal without what would steer it, and into a file as it is."""

from __future__ import annotations

import io

import pytest

from hai.v1.log_service_pb2 import LogLine
from hai_tui.cli.follow import Lines, _shown

EVIL = "\x1b]0;title\x07a\x1b[2J\x1b]52;c;cGF5\x07\x1b[31mred"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_colours_and_nothing_else_that_steers_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", Screen())
    assert _shown(LogLine(text=EVIL), Lines()) == "\x1b[Ka\x1b[31mred\x1b[m\n"


def test_a_file_gets_what_was_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert _shown(LogLine(text=EVIL), Lines()) == f"{EVIL}\n"
