"""The window on a log: limited in size, exact at both ends, one line for a progress bar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_tui.logs.rows import LineFormat, rows_of
from hai_tui.logs.search import compile_query, matches, next_hit
from hai_tui.logs.window import Change, Line, Window


def line(text: str, *, rank: int = 0, run: int = 1, redraw: bool = False) -> Line:
    return Line(run, rank, 1.0, text, redraw)


def texts(window: Window) -> list[str]:
    return [each.text for each in window]


def test_lines_come_at_both_ends() -> None:
    window = Window()
    window.append([line("c")], "3", "2")
    assert window.prepend([line("a"), line("b")], "0") == Change(before=2)
    assert window.append([line("d")], "4") == Change(after=1)
    assert texts(window) == ["a", "b", "c", "d"]
    assert (window.begin, window.end) == ("0", "4")


def test_what_is_too_much_leaves_at_the_other_end() -> None:
    window = Window(max_bytes=400_000)
    for number in range(10):
        window.append([line(f"{number}" * 70_000)], str(number + 1), str(number))
    assert window.bytes <= 400_000
    kept = [text[0] for text in texts(window)]
    assert kept == ["5", "6", "7", "8", "9"]
    assert (window.begin, window.end) == ("5", "10")
    change = window.prepend([line("4" * 70_000)], "4")
    assert change == Change(before=1, dropped_after=1)
    assert (window.begin, window.end) == ("4", "9")


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        pytest.param(
            [line("10 %", redraw=True), line("50 %", redraw=True), line("100 %")],
            ["100 %"],
            id="one bar",
        ),
        pytest.param(
            [line("a", redraw=True), line("b", rank=1, redraw=True), line("A"), line("B", rank=1)],
            ["A", "B"],
            id="a bar a rank, each in its place",
        ),
        pytest.param([line("x", redraw=True), line("y", run=2)], ["x", "y"], id="not across runs"),
    ],
)
def test_bars_are_drawn_in_place(lines: list[Line], seen: list[str]) -> None:
    together, one_by_one = Window(), Window()
    together.append(lines, "1", "0")
    for number, each in enumerate(lines):
        one_by_one.append([each], str(number))
    assert texts(together) == texts(one_by_one) == seen


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 90_000)), max_size=40))
def test_it_is_one_piece_of_the_log_and_bounded(steps: list[tuple[bool, int]]) -> None:
    """Lines are numbered; cursors are the numbers between them."""
    window = Window(max_bytes=300_000)
    window.append([line("0")], "1", "0")
    for at_end, size in steps:
        if at_end:
            number = int(window.end)
            window.append([line(f"{number}".ljust(size))], str(number + 1))
        else:
            number = int(window.begin) - 1
            window.prepend([line(f"{number}".ljust(size))], str(number))
        numbers = [int(text) for text in texts(window)]
        assert numbers == list(range(int(window.begin), int(window.end)))
        assert window.bytes == sum(len(text) + 120 for text in texts(window))
        assert window.bytes <= 300_000 + 90_120


def test_runs_are_separated_and_long_lines_folded() -> None:
    lines = [line("a" * 25), line("b", run=2)]
    rows = [
        (row.line.text[0], row.piece, row.starts_run) for row in rows_of(lines, LineFormat(wrap=10))
    ]
    assert rows == [
        ("a", 0, True),
        ("a", 0, False),
        ("a", 1, False),
        ("a", 2, False),
        ("b", 0, True),
        ("b", 0, False),
    ]


def test_a_filter_leaves_lines_out() -> None:
    search_pattern = compile_query("LOSS|error")
    assert search_pattern is not None
    lines = [line("loss 1"), line("LOSS 2"), line("an error")]
    rows = rows_of(lines, LineFormat(only=matches(search_pattern)))
    assert [row.line.text for row in rows if not row.starts_run] == ["LOSS 2", "an error"]


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        pytest.param("loss", "Loss 0.5", True, id="capitals do not count"),
        pytest.param("Loss", "loss 0.5", False, id="unless some are typed"),
        pytest.param("los+ \\d", "loss 5", True, id="a regular expression"),
        pytest.param("f(x", "calls f(x)", True, id="or just words"),
        pytest.param("red", "\x1b[31mr\x1b[32med", True, id="colours do not stand between"),
    ],
)
def test_what_a_person_looks_for(words: str, text: str, found: bool) -> None:
    search_pattern = compile_query(words)
    assert search_pattern is not None
    assert matches(search_pattern)(line(text)) is found


def test_the_nearest_hit() -> None:
    lines = [line("a"), line("x1"), line("b"), line("x2")]
    search_pattern = compile_query("x")
    assert search_pattern is not None
    test = matches(search_pattern)
    assert next_hit(lines, 0, test) == 1
    assert next_hit(lines, 2, test) == 3
    assert next_hit(lines, 2, test, back=True) == 1
    assert next_hit(lines, 4, test) is None
    assert next_hit(lines, 0, test, back=True) is None
