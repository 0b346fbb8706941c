"""All output of a program becomes lines in the format of the log, and none is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.agent.output.line_splitter import LineSplitter
from hai_backend.logs.lines import MAX_LINE_BYTES, STAMP_BYTES, decode, stamp


def split(*pieces: bytes) -> list[str]:
    splitter = LineSplitter()
    out = b"".join(splitter.feed(piece, 1.0) for piece in pieces) + splitter.flush(2.0)
    return [decode(raw, 1, 0, 0.0).text for raw in out.split(b"\n")[:-1]]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        pytest.param([b"a\nb\n"], ["a", "b"], id="lines"),
        pytest.param([b"a", b"b\n", b"c"], ["ab", "c"], id="pieces, no end"),
        pytest.param([b"\n\n"], ["", ""], id="empty lines"),
        pytest.param([b"a\r\nb\r\n"], ["a", "b"], id="windows"),
        pytest.param([b"a\r", b"\nb"], ["a", "b"], id="windows, cut"),
        pytest.param([b"\r\r\r"], [], id="only returns"),
        pytest.param([b"\xff\0\n"], ["\ufffd\0"], id="binary"),
    ],
)
def test_lines(pieces, lines):
    assert split(*pieces) == lines


def test_stamps_never_decrease():
    splitter = LineSplitter()
    assert splitter.feed(b"a\n", 5.0) == stamp(5.0) + b"a\n"
    assert splitter.feed(b"b\n", 4.0) == stamp(5.0) + b"b\n"


def test_last_lines_are_whole_and_without_stamps():
    splitter = LineSplitter()
    for i in range(5000):
        splitter.feed(b"%d\n" % i, 1.0)
    assert splitter.last_lines(3) == "4997\n4998\n4999"


binary = st.binary(max_size=200).map(lambda data: data.replace(b"\r", b"").replace(b"\x1b", b""))


@given(
    st.lists(binary | st.just(b"\xc3\xa9" * 50_000) | st.sampled_from([b"\n", b"\r\n"]), max_size=8)
)
def test_no_byte_is_lost_and_no_line_is_too_long(pieces):
    """Of what is no bar; see output/test_screen.py."""
    splitter = LineSplitter()
    out = b"".join(splitter.feed(piece, 1.0) for piece in pieces) + splitter.flush(1.0)
    lines = out.split(b"\n")[:-1]
    assert all(len(line) < MAX_LINE_BYTES and line.startswith(stamp(1.0)) for line in lines)
    kept = b"".join(line[STAMP_BYTES:] for line in lines)
    assert kept.replace(b"\r", b"") == b"".join(pieces).replace(b"\r", b"").replace(b"\n", b"")
    texts = [line[STAMP_BYTES:] for line in lines]
    if all(piece in (b"\xc3\xa9" * 50_000, b"\n") for piece in pieces):
        assert all(text.decode() is not None for text in texts)  # lines are cut between characters


def test_a_long_row_of_returns_takes_no_time():
    splitter = LineSplitter()
    # A regular expression that tries to match at each return takes 39 s for the first piece.
    pieces = [b"\r" * 65_536 for _ in range(5)]
    out = b"".join(splitter.feed(piece, 1.0) for piece in pieces) + splitter.flush(1.0)
    assert out == b""
    assert splitter.feed(b"done\n", 1.0) == stamp(1.0) + b"done\n"
