"""Every case of the next action of a server that does not lead."""

from __future__ import annotations

import pytest

from hai_backend.server.election.next_action import (
    SILENT_SECONDS,
    Action,
    Follow,
    LeaderState,
    Oust,
    Take,
    next_action,
)

NOW, LEADER, OTHER = 1000.0, 22, 33


def state(holder: int | None, silent_seconds: float = 0.0, address: str = "b:1") -> LeaderState:
    return LeaderState(7, address, LEADER, NOW - silent_seconds, holder)


@pytest.mark.parametrize(
    ("leader_state", "action"),
    [
        pytest.param(LeaderState(0, "", 0, 0.0, None), Take(), id="no server has led yet"),
        pytest.param(state(None), Take(), id="the session of the leader has ended"),
        pytest.param(state(None, address=""), Take(), id="the leader has resigned"),
        pytest.param(state(LEADER), Follow("b:1"), id="the leader renews"),
        pytest.param(state(LEADER, 2.9), Follow("b:1"), id="the renewal is a little late"),
        pytest.param(state(LEADER, -5.0), Follow("b:1"), id="renewed in the future, after a clock step"),
        pytest.param(state(LEADER, SILENT_SECONDS), Oust(LEADER), id="the leader is silent"),
        pytest.param(state(LEADER, 9e9, ""), Oust(LEADER), id="the leader has resigned long ago and keeps the lock"),
        pytest.param(state(LEADER, address=""), Follow(""), id="the leader has just resigned"),
        pytest.param(state(OTHER), Follow(""), id="another server has the lock and waits for the row"),
        pytest.param(state(OTHER, 60.0), Follow(""), id="it waits long for a write of the last leader"),
    ],
)  # fmt: skip
def test_next_action(leader_state: LeaderState, action: Action) -> None:
    assert next_action(leader_state, NOW) == action
