"""`hai status` reports how much of a log was dropped because it reached its limit."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param(
            12345, "rank 1: the first 12345 lines (7.63 MiB) of its log were dropped", id="counted"
        ),
        pytest.param(0, "rank 1: the first 7.63 MiB of its log were dropped", id="bytes only"),
    ],
)
def test_status_says_how_much(hai, fake, lines: int, said: str) -> None:
    rank = fake.world.task(1).run.ranks[1]
    rank.log_dropped_bytes, rank.log_dropped_lines = 8_000_000, lines
    assert [line for line in hai("status", "1").out.splitlines() if "were dropped" in line] == [
        f"{said}; a log keeps its newest part"
    ]
    found = json.loads(hai("status", "1", "--json").out)["run"]["ranks"][1]
    assert (found["log_dropped_bytes"], found["log_dropped_lines"]) == (8_000_000, lines)


def test_status_says_nothing_of_logs_that_are_whole(hai) -> None:
    assert "not kept" not in hai("status", "1").out
