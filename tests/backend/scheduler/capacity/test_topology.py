"""A gang spans few switches, and uses the smallest domain that fits."""

from __future__ import annotations

import pytest

from hai_backend.scheduler.capacity.topology import Domain, choose_leaves

A1, A2, B1 = ("a1", "a"), ("a2", "a"), ("b1", "b")


@pytest.mark.parametrize(
    ("empty", "count", "taken"),
    [
        pytest.param({(): 5}, 3, [((), 3)], id="no topology"),
        pytest.param({A1: 4, A2: 2}, 2, [(A2, 2)], id="the leaf that just holds it"),
        pytest.param({A1: 4, A2: 2, B1: 5}, 6, [(A1, 4), (A2, 2)], id="two leaves of one spine"),
        pytest.param({A1: 4, A2: 3, B1: 9}, 5, [(B1, 5)], id="one leaf rather than a fuller spine"),
        pytest.param({A1: 4, A2: 3, B1: 5}, 6, [(A1, 4), (A2, 2)], id="a spine that just holds it"),
        pytest.param({A1: 1, A2: 1, B1: 1}, 3, [(A1, 1), (A2, 1), (B1, 1)], id="everything"),
        pytest.param({("x",): 3, ("y",): 2, ("z",): 1}, 4, [(("x",), 3), (("z",), 1)], id="the rest best fit"),
        pytest.param({A1: 2, A2: 2, ("c",): 3}, 4, [(A1, 2), (A2, 2)], id="some nodes have no spine"),
        pytest.param({A1: 1, (): 2}, 2, [((), 2)], id="some nodes have no topology"),
    ],
)  # fmt: skip
def test_a_gang_gets_the_smallest_domain_that_fits(
    empty: dict[Domain, int], count: int, taken: list[tuple[Domain, int]]
) -> None:
    assert choose_leaves(empty, count) == taken
