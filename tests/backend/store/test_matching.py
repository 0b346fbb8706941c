"""Patterns of task names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.store.matching import matches_pattern


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        pytest.param("bert", "bert", True, id="the same text"),
        pytest.param("bert", "ber", False, id="a part of the name is not enough"),
        pytest.param("bert", "*", True, id="a star matches any text"),
        pytest.param("", "*", True, id="a star matches the empty text"),
        pytest.param("aba", "ab*ba", False, id="the parts must not overlap"),
        pytest.param("a.c", "a?c", False, id="a question mark is literal"),
        pytest.param("one\ntwo", "one*two", True, id="a star matches a line end"),
        pytest.param("a" * 200, "*a" * 60 + "*b", False, id="fast where a regex takes very long"),
    ],
)
def test_a_star_matches_any_text(name: str, pattern: str, expected: bool) -> None:
    assert matches_pattern(name, pattern) is expected


@given(st.text("ab", max_size=8), st.text("ab*", max_size=6))
def test_a_pattern_matches_like_a_regular_expression(name: str, pattern: str) -> None:
    regex = ".*".join(map(re.escape, pattern.split("*")))
    assert matches_pattern(name, pattern) is (re.fullmatch(regex, name) is not None)
