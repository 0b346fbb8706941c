"""Tests of the syntax of filters. The meaning of terms is tested where they are evaluated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hai.client.tasks.filters import parse_term, quote, split_words


@given(st.text(st.characters(exclude_characters='"'), min_size=1), st.text("ab -,", min_size=1))
def test_a_quoted_value_is_parsed_back(name: str, tag: str) -> None:
    words = split_words(f"name:{quote(name)} -tag:{quote(tag)},x")
    terms = [parse_term(word) for word in words]
    assert [(t.key, t.values, t.negated) for t in terms if t] == [
        ("name", (name,), False),
        ("tag", (tag, "x"), True),
    ]
