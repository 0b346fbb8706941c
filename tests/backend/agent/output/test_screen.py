"""Progress bars become the lines that a terminal shows at the end. Other lines of a log do not change."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hai_backend.agent.output.line_splitter import LineSplitter
from hai_backend.logs.lines import decode

ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
UP, CLEAR, HIDE, SHOW = "\x1b[A", "\x1b[2K", "\x1b[?25l", "\x1b[?25h"


class Terminal:
    """An unlimited terminal with one character per position. It is slow, but so simple that it is correct."""

    def __init__(self) -> None:
        self.places: dict[tuple[int, int], str] = {}
        self.row = self.column = self.last = 0

    def print(self, text: str) -> None:
        at = 0
        while at < len(text):
            if (escape := ESCAPE.match(text, at)) is not None:
                self._obey(escape.group())
                at = escape.end()
                continue
            self._put(text[at])
            at += 1

    def lines(self) -> list[str]:
        """Return the shown lines, without trailing blanks and without empty lines at the end."""
        rows = [[" "] * 300 for _ in range(self.last + 1)]
        for (row, column), char in self.places.items():
            rows[row][column] = char
        lines = ["".join(row).rstrip() for row in rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def _put(self, char: str) -> None:
        if char == "\n":
            self.row, self.column = self.row + 1, 0
        elif char == "\r":
            self.column = 0
        elif char == "\b":
            self.column = max(0, self.column - 1)
        else:
            self.places[self.row, self.column] = char
            self.column += 1
        self.last = max(self.last, self.row)

    def _obey(self, escape: str) -> None:
        count = int(escape[2:-1] or 1) if escape[2:-1].isdecimal() or escape[-1] == "A" else 0
        match escape[-1]:
            case "A":
                self.row = max(0, self.row - count)
            case "B":
                self.row += count
            case "G":
                self.column = count - 1
            case "K":
                begin = 0 if escape == CLEAR else self.column
                gone = [
                    place for place in self.places if place[0] == self.row and place[1] >= begin
                ]
                for place in gone:
                    del self.places[place]


def shown(text: str) -> list[str]:
    terminal = Terminal()
    terminal.print(text)
    return terminal.lines()


def stored(pieces: Iterable[bytes], *, seconds: float = 0.0) -> list[str]:
    """Return the texts of the lines in the log. `seconds` pass before each piece."""
    splitter, now = LineSplitter(), 1000.0
    out = b""
    for piece in pieces:
        now += seconds
        out += splitter.take_finished_bars(now) + splitter.feed(piece, now)
    out += splitter.flush(now)
    return [decode(raw, 1, 0, 0.0).text for raw in out.split(b"\n")[:-1]]


def seen(lines: Iterable[str]) -> list[str]:
    """Return lines as a terminal shows them."""
    rows = [ESCAPE.sub("", line).rstrip() for line in lines]
    while rows and not rows[-1]:
        rows.pop()
    return rows


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("1%\r2%\r3%\n", ["3%"], id="a return between states"),
        pytest.param("\r1%\r2%\nnext\n", ["2%", "next"], id="a return before each state (tqdm)"),
        pytest.param("1%\r2%\r", ["2%"], id="a return after each state"),
        pytest.param("\r 9%\r10%", ["10%"], id="its program ends in the middle"),
        pytest.param("\rlong bar\rshort\n", ["shortbar"], id="what is not overwritten stays"),
        pytest.param("\rlong bar\r        \rok\n", ["ok"], id="overwritten by blanks"),
        pytest.param("\rlong bar\r\x1b[Kok\n", ["ok"], id="erased"),
        pytest.param("\rwork |\b/\b-\n", ["work -"], id="a spinner"),
        pytest.param("\b" * 5 + "\r 1%" + "\b" * 3 + "\r 2%\n", [" 2%"], id="keras"),
        pytest.param("\ra\n\rb 1\x1b[A\n\rb 2\x1b[A\ra!\n\n", ["a!", "b 2"], id="nested (tqdm)"),
        pytest.param(
            f"{HIDE}a 1\nb 1\r{CLEAR}{UP}{CLEAR}a 2\nb 2\n{SHOW}done\n",
            ["a 2", "b 2", "done"],
            id="rows that are drawn anew (rich)",
        ),
        pytest.param(
            f"{HIDE}a 1\nb 1\r{CLEAR}{UP}{CLEAR}said\na 2\nb 2\n{SHOW}",
            ["said", "a 2", "b 2"],
            id="a line is printed above them",
        ),
        pytest.param("\rdone\n\n\nx\n", ["done", "", "", "x"], id="empty lines after a bar"),
        pytest.param("\r进度 1%\r进度 22%\n", ["进度 22%"], id="wide characters"),
        pytest.param("\r进进进\rab1\n", ["ab1 进"], id="half of a wide character"),
        pytest.param("a\tb\r\n", ["a\tb"], id="a tab"),
        pytest.param("\r\x1b[31m1%\x1b[m\r\x1b[32m2%\x1b[m\n", ["\x1b[32m2%\x1b[m"], id="colours"),
        pytest.param("first\n\x1b[Asecond\n", ["first", "second"], id="above what was stored"),
    ],
)
def test_a_bar_is_stored_as_it_is_in_the_end(text: str, lines: list[str]) -> None:
    data = text.encode()
    assert stored([data]) == lines
    assert stored(data[i : i + 1] for i in range(len(data))) == lines


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"plain", id="plain"),
        pytest.param(b"\x1b[1;31mred\x1b[m\x1b[K tail\x1b[K", id="coloured by a compiler"),
        pytest.param(b"b\bbo\bol\bld", id="overstruck"),
        pytest.param(b"\xff\xfe binary \0 \x07", id="binary"),
        pytest.param(b"\x1b]0;title\x07text", id="a title"),
        pytest.param("e\u0301 \u8fdb\u5ea6 \U0001f680\ttab  ".encode(), id="marks, wide, blanks"),
        pytest.param(b"", id="empty"),
        pytest.param(b"x" * 200_000, id="long"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"\rbar 1%\rbar 2%\n", b"\ra\n\rb\x1b[A\n\n"])
def test_what_is_no_bar_stays_as_it_is_also_after_one(line: bytes, before: bytes) -> None:
    splitter = LineSplitter()
    data = before + (line + b"\n") * 5
    out = splitter.feed(data, 1.0) + splitter.flush(1.0)
    texts = [raw[28:] for raw in out.split(b"\n")[:-1]]
    if before and b"\b" in line:
        return  # after a bar, a backspace may draw a spinner
    assert b"".join(texts).endswith(line * 5)
    assert LineSplitter().feed((line + b"\r\n") * 5, 1.0) == LineSplitter().feed(
        (line + b"\n") * 5, 1.0
    )


words = st.text("abc%# ", min_size=1, max_size=12).map(lambda s: s.strip() or "x")


@st.composite
def single(draw: st.DrawFn) -> str:
    """One bar after another, and lines between them."""
    states = draw(st.lists(words, min_size=1, max_size=8))
    end = draw(st.sampled_from(["\n", "\r" + " " * 12 + "\r", f"\r{CLEAR}", "\r\x1b[K"]))
    style = draw(st.sampled_from(["\r{}", "{}\r", "\x1b[32m\r{}\x1b[m", "\r{}\x1b[K"]))
    return "".join(style.format(state) for state in states) + end


@st.composite
def nested(draw: st.DrawFn) -> str:
    """Bars below one another, each drawn from the first row on, as tqdm does; messages are printed above them."""
    depth = draw(st.integers(2, 4))
    out = ""
    for place in range(depth):
        out += "\n" * place + f"\r{draw(words)}" + UP * place
    for _ in range(draw(st.integers(0, 8))):
        place = draw(st.integers(0, depth - 1))
        if draw(st.integers(0, 5)) == 0:
            for i in range(depth):
                out += "\n" * i + "\r" + " " * 12 + "\r" + UP * i
            out += draw(words) + "\n"
            for i in range(depth):
                out += "\n" * i + f"\r{draw(words)}" + UP * i
        out += "\n" * place + f"\r{draw(words)}" + UP * place
    return out + "\n" * depth


@st.composite
def display(draw: st.DrawFn) -> str:
    """Rows that are erased and drawn anew, as rich does; they may become more, and lines are printed above them."""
    height, out = draw(st.integers(1, 6)), HIDE
    for frame in range(draw(st.integers(1, 8))):
        if frame:
            out += f"\r{CLEAR}" + f"{UP}{CLEAR}" * (height - 1)
            height += draw(st.integers(0, 1))
            out += "".join(f"{line}\n" for line in draw(st.lists(words, max_size=3)))
        out += "\n".join(draw(words) for _ in range(height))
    return out + "\n" + SHOW


plain = words.map(lambda text: f"{text}\n")
programs = st.lists(st.one_of(plain, plain, single(), nested(), display()), max_size=8).map("".join)


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return (data[a:b] for a, b in pairwise(ends))


@settings(max_examples=300, deadline=None)
@given(programs, st.lists(st.integers(0, 2000), max_size=30), st.sampled_from([0.0, 0.01]))
def test_the_log_is_what_a_terminal_shows_in_the_end(
    program: str, places: list[int], seconds: float
) -> None:
    assert seen(stored(cut(program.encode(), places), seconds=seconds)) == shown(program)


garbage = st.lists(
    st.one_of(
        plain,
        st.sampled_from(["\r", "\n", "\b", UP, CLEAR, HIDE, SHOW, "\x1b[3B", "\x1b[9G", "\x1b"]),
        st.sampled_from(["\x1b[J", "\x1b[1K", "\x1b[999A", "\x1b[", "\t", "\u8fdb", "\u0301"]),
    ),
    max_size=40,
).map("".join)


@settings(deadline=None)
@given(garbage, st.lists(st.integers(0, 200), max_size=30))
def test_whatever_was_printed_ordinary_lines_come_through_after_it(
    text: str, places: list[int]
) -> None:
    after = [f"line {number}" for number in range(300)]
    lines = stored([*cut(text.encode(), places), *(f"\n{line}".encode() for line in after), b"\n"])
    assert lines[-100:] == after[-100:]


@settings(max_examples=100, deadline=None)
@given(st.lists(programs, max_size=4), st.floats(0.5, 20.0))
def test_however_slow_a_program_is_no_line_is_lost(coroutines: list[str], seconds: float) -> None:
    """Bars that it comes back to late may be there twice, in two states."""
    program = "".join(f"{part}line {number}\n" for number, part in enumerate(coroutines))
    pieces = (program[i : i + 7].encode() for i in range(0, len(program), 7))
    lines = [line for line in stored(pieces, seconds=seconds) if line.startswith("line")]
    assert lines == [f"line {number}" for number in range(len(coroutines))]


def test_a_day_of_bars_is_as_many_lines_as_bars() -> None:
    splitter, out, now = LineSplitter(), b"", 0.0
    for epoch in range(24):
        for step in range(500):
            now += 7.2
            out += splitter.feed(b"\repoch %d: %d/500" % (epoch, step + 1), now)
        out += splitter.feed(b"\nloss 0.5\n", now)
    texts = [decode(raw, 1, 0, 0.0).text for raw in out.split(b"\n")[:-1]]
    assert texts == [t for e in range(24) for t in (f"epoch {e}: 500/500", "loss 0.5")]


def test_viewers_are_shown_a_bar_once_a_second_and_only_what_is_new() -> None:
    splitter, told = LineSplitter(), []
    for step in range(100):
        now = 100 + step / 20
        splitter.feed(b"\r%d/100" % step, now)
        if (state := splitter.new_bar_text(now)) is not None:
            told.append((now, state))
    assert told == [(101.0, "20/100"), (102.0, "40/100"), (103.0, "60/100"), (104.0, "80/100")]
    assert splitter.wait_seconds() == pytest.approx(0.05)
    assert splitter.new_bar_text(105.0) == "99/100"
    assert (splitter.new_bar_text(107.0), splitter.wait_seconds()) == (None, None)
    splitter.feed(b"\nend\n", 107.0)
    assert (splitter.new_bar_text(120.0), splitter.wait_seconds()) == (None, None)


def test_a_bar_whose_program_falls_silent_is_stored_after_a_moment() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"\r1%\r100%\n", 10.0) == b""
    assert splitter.wait_seconds() == 1.0
    assert splitter.take_finished_bars(10.9) == b""
    assert splitter.take_finished_bars(11.0).endswith(b"Z 100%\n")


def test_a_clock_that_is_set_back_delays_nothing() -> None:
    splitter = LineSplitter()
    splitter.feed(b"\r1%", 5000.0)
    splitter.feed(b"\r2%\n", 1000.0)
    assert splitter.new_bar_text(1001.0) == "2%"
    assert splitter.take_finished_bars(1002.0).endswith(b"Z 2%\n")


TQDM = """
import sys
from tqdm import tqdm
for epoch in tqdm(range(3), desc="all"):
    for step in tqdm(range(50), desc=f"epoch {epoch}", leave={leave}, mininterval=0.0):
        if step == 25:
            tqdm.write(f"loss of {epoch}", file=sys.stderr)
print("after", file=sys.stderr)
"""
RICH = """
from rich.console import Console
from rich.progress import Progress
console = Console(force_terminal=True, width=80)
with Progress(console=console, transient={leave}) as progress:
    tasks = [progress.add_task(f"task {n}", total=20) for n in range(3)]
    for step in range(20):
        for task in tasks:
            progress.advance(task)
        progress.refresh()
        if step % 8 == 0:
            progress.console.print(f"step {step}")
        if step == 10:
            tasks.append(progress.add_task("one more", total=20))
console.print("after")
"""


@pytest.mark.parametrize("leave", [True, False])
@pytest.mark.parametrize(("library", "program"), [("tqdm", TQDM), ("rich", RICH)])
def test_real_libraries(library: str, program: str, leave: bool) -> None:
    pytest.importorskip(library)
    source = program.replace("{leave}", str(leave))
    done = subprocess.run(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    text = done.stdout.decode()
    assert "\r" in text
    expected = shown(text)
    assert seen(stored([done.stdout])) == expected
    assert (
        seen(
            stored((done.stdout[i : i + 40] for i in range(0, len(done.stdout), 40)), seconds=0.01)
        )
        == expected
    )
    assert len(expected) < text.count("\r") / 2
