"""The table of several replays, in a pipe and on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from hai_backend.sim.report.comparison import plain, rows, show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def line(text: str, title: str) -> list[str]:
    (found,) = (line for line in text.splitlines() if line.startswith(title + "  "))
    return found.removeprefix(title).split()


def test_in_a_pipe_figures_stand_below_their_names_and_the_best_has_a_star(result) -> None:
    text = plain([result("slow", overhead=3600, suspensions=2), result("fast")])
    assert text.splitlines()[0].split() == ["slow", "fast"]
    assert line(text, "nodes") == ["2", "2"]
    assert line(text, "suspensions per job") == ["2.00", "0.00*"]
    assert line(text, "wait mean of HIGH, h") == ["1.99", "0.49*"]
    assert "\x1b" not in text
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_one_result_is_not_the_best_of_anything(result) -> None:
    assert "*" not in plain([result("only")])


def test_levels_are_listed_only_if_there_are_several(result) -> None:
    assert "wait mean of" not in plain([result("flat", levels=False)])


def test_a_level_that_one_trace_lacks_is_shown_as_a_dash(result) -> None:
    text = plain([result("flat", levels=False), result("two")])
    assert line(text, "wait mean of HIGH, h") == ["-", "0.49"]


def test_best_values_are_marked_per_trace(result) -> None:
    other = replace(result("fast"), trace="other.csv")
    (row,) = (r for r in rows([result("slow", overhead=60), other]) if r.title == "JCT mean, h")
    assert row.best == frozenset()


def test_equal_best_values_are_all_marked(result) -> None:
    found = rows([result("a"), result("b"), result("c", overhead=3600)])
    assert next(r for r in found if r.title == "JCT mean, h").best == {0, 1}


@pytest.mark.parametrize("columns", ["60", "200"])
def test_on_a_terminal_columns_are_folded_into_blocks(
    result, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    out = Terminal()
    show([result(f"policy-number-{i}") for i in range(4)], out)
    text = out.getvalue()
    assert all(f"policy-number-{i}" in text for i in range(4))
    assert text.count("JCT mean, h") == (4 if columns == "60" else 1)
