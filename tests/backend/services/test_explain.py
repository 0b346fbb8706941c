"""Sentences about what stands in the way of a task."""

from __future__ import annotations

import pytest

from hai_backend.sched.obstacles import NodeNumbers
from hai_backend.services.explain import protection


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        pytest.param(NodeNumbers(takeable=1), [], id="nobody"),
        pytest.param(
            NodeNumbers(protected=2, protected_until=60.0, protected_runs=(9, 8)),
            ["2 nodes held by runs that it outranks, but that are protected: task 9, 8; "
             "the first of them until 1970-01-01 00:01:00 UTC"],
            id="until when",
        ),
        pytest.param(
            NodeNumbers(protected=1, protected_until=60.0, protected_runs=(9,), protected_why="it worked for nothing"),
            ["1 node held by runs that it outranks, but that are protected: task 9; "
             "the first of them until 1970-01-01 00:01:00 UTC: it worked for nothing"],
            id="and why",
        ),
    ],
)  # fmt: skip
def test_who_is_protected(numbers: NodeNumbers, said: list[str]) -> None:
    assert [*protection(numbers)] == said
