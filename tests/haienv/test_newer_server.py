"""What only a newer server has a word for is listed as such; it is no trace."""

from __future__ import annotations

from hai.v1.environment_pb2 import Environment
from haienv.cluster import _as_dict


def test_an_environment_in_a_state_that_came_later() -> None:
    shown = _as_dict(Environment(name="base", owner="ada", state=99, visibility=98))  # type: ignore[arg-type]
    assert (shown["state"], shown["visibility"]) == ("UNKNOWN_99", "unknown_98")
