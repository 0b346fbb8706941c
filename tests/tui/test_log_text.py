"""Control codes in a log can colour text, and have no other effect on the screen."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from hai_tui.logs.ansi_sanitize import plain, sanitize, styled

_CODES = [
    "\x1b",
    "\x1b[",
    "\x1b]0;",
    "\x07",
    "\x1b\\",
    "\x9b",
    "\x9c",
    "\x90",
    "31",
    ";",
    "m",
    "H",
    "\b",
    "\r",
    "\t",
    "1A",
]
hostile = st.one_of(
    st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "replace")),
    st.text(max_size=100),
    st.lists(st.sampled_from([*_CODES, "text", "字"]), max_size=30).map("".join),
)


@given(hostile)
def test_only_printable_signs_reach_the_screen(raw: str) -> None:
    text = styled(raw)
    assert text.plain == plain(raw)
    assert text.plain.isprintable()


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        pytest.param("plain text", "plain text", id="plain"),
        pytest.param("\x1b[31mred\x1b[0m", "red", id="colours"),
        pytest.param("\x1b]0;owned\x07after", "after", id="a title, ended by BEL"),
        pytest.param("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link", id="a link"),
        pytest.param(
            "\x1b]0;never ended", "0;never ended", id="a title that never ends hides nothing"
        ),
        pytest.param("\x1bPq#0\x1b\\sixel", "sixel", id="a picture"),
        pytest.param("a\x1b[2J\x1b[Hb", "ab", id="clear and home"),
        pytest.param("a\x9b5Ab", "ab", id="C1 control"),
        pytest.param("\x1b[6n\x1b[c?", "?", id="questions to the terminal"),
        pytest.param("\x1b[?1049h\x1b[?25lx", "x", id="modes"),
        pytest.param("\x1bc\x1b(0lqk", "lqk", id="reset, character set"),
        pytest.param("half a code \x1b[3", "half a code 3", id="cut off"),
        pytest.param("old\rnew", "new", id="carriage return inside"),
        pytest.param("|\b/\b-", "-", id="a spinner"),
        pytest.param("\b\bx", "x", id="more backspaces than text"),
        pytest.param("a\tb", "a       b", id="tabs"),
        pytest.param("right\u202eleft", "rightleft", id="direction is not turned"),
        pytest.param("中文\u3000日志", "中文  日志", id="wide signs"),
        pytest.param("nul\x00bell\x07", "nulbell", id="nul, bell"),
    ],
)
def test_what_is_seen(raw: str, seen: str) -> None:
    assert plain(raw) == seen
    assert styled(raw).plain == seen


@pytest.mark.parametrize(
    ("raw", "style"),
    [
        pytest.param("\x1b[31mx", "red", id="basic"),
        pytest.param("\x1b[1;92mx", "bold bright_green", id="bold and bright"),
        pytest.param("\x1b[38;5;208mx", "color(208)", id="256 colours"),
        pytest.param("\x1b[38;2;1;2;3mx", "#010203", id="true colour"),
        pytest.param("\x1b[4:3mx", "underline", id="with colons"),
    ],
)
def test_colours_stay(raw: str, style: str) -> None:
    (span,) = styled(raw).spans
    found, search_pattern = span.style, Style.parse(style)
    assert isinstance(found, Style)
    assert _seen(found) == _seen(search_pattern)


def _seen(style: Style) -> tuple[object, ...]:
    color = style.color
    return (color and (color.number, color.triplet), bool(style.bold), bool(style.underline))


def test_nothing_is_hidden_or_blinks() -> None:
    (span,) = styled("\x1b[5;8msecret").spans
    assert not span.style.conceal  # type: ignore[union-attr]
    assert not span.style.blink  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("\x1b[" * 32_000, id="codes that never end"),
        pytest.param("\x1b]0;" * 16_000, id="titles that never end"),
        pytest.param("\x1b[31m" * 13_000, id="only colours"),
        pytest.param("a" * 32_000 + "\b" * 32_000, id="backspaces"),
        pytest.param("\x1b[" + "0;" * 32_000 + "m", id="one endless colour"),
    ],
)
def test_hostile_lines_cost_time_in_proportion(raw: str) -> None:
    before = time.process_time()
    styled(raw)
    assert time.process_time() - before < 2.0


def test_clean_text_is_handed_on_as_it_is() -> None:
    line = "step 1 loss 0.5"
    assert sanitize(line) is line
