"""Numbers in messages."""

from __future__ import annotations

import pytest

from hai_backend.domain.formatting import format_count


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0 nodes"),
        (1, "1 node"),
        (1.0, "1 node"),
        (10_000, "10000 nodes"),
        (1 / 3, "0.3333 nodes"),
    ],
)
def test_a_number_with_its_word(number: float, expected: str) -> None:
    assert format_count(number, "node") == expected
