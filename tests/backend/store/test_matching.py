"""Patterns of names: as a shell means *, and never slow, whoever wrote them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hai_backend.store.matching import fits


@pytest.mark.parametrize(
    ("name", "pattern", "fit"),
    [
        pytest.param("bert", "bert", True, id="itself"),
        pytest.param("bert", "ber", False, id="a part is not enough"),
        pytest.param("bert", "*", True, id="anything"),
        pytest.param("", "*", True, id="nothing is anything"),
        pytest.param("aba", "ab*ba", False, id="begin and end do not overlap"),
        pytest.param("a.c", "a?c", False, id="no other sign means more than itself"),
        pytest.param("one\ntwo", "one*two", True, id="a line end is text"),
        pytest.param("a" * 200, "*a" * 60 + "*b", False, id="would take a regex for ever"),
    ],
)
def test_a_star_is_any_text(name: str, pattern: str, fit: bool) -> None:
    assert fits(name, pattern) is fit


@given(st.text("ab", max_size=8), st.text("ab*", max_size=6))
def test_it_is_what_a_regex_would_say(name: str, pattern: str) -> None:
    regex = ".*".join(map(re.escape, pattern.split("*")))
    assert fits(name, pattern) is (re.fullmatch(regex, name) is not None)
