"""Numbers in messages."""

from __future__ import annotations

import pytest

from hai_backend.domain.formatting import format_count, format_part, format_size


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


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        pytest.param(0, 9, "0 of 9 B", id="bytes"),
        pytest.param(2.1 * 2**30, 3.6 * 2**30, "2.1 of 3.6 GiB", id="the unit of the whole"),
        pytest.param(2**20, 2**30, "0.000977 of 1 GiB", id="a small part"),
        pytest.param(2**62, 2**62, "4 of 4 EiB", id="the largest"),
    ],
)
def test_a_part_of_a_size_has_the_unit_of_the_whole(
    part: float, whole: float, expected: str
) -> None:
    assert format_part(part, whole) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (3.6 * 2**30, "3.6 GiB"),
        (2**70, "1.02e+03 EiB"),
    ],
)
def test_sizes(size: float, expected: str) -> None:
    assert format_size(size) == expected
