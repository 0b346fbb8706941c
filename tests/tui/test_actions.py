"""The app offers a role exactly those actions that the server permits."""

from __future__ import annotations

import pytest

from hai_backend.api.server.methods import RULES
from hai_backend.domain.accounts.right import Right
from hai_tui.actions import Caller

MANAGED = {rule.right for rule in RULES.values() if rule.right is not None}


@pytest.mark.parametrize("right", sorted(MANAGED))
@pytest.mark.parametrize("role", ["USER", "OPERATOR", "ADMIN"])
def test_a_role_is_offered_what_calls_of_that_right_take(role: str, right: Right) -> None:
    order = ["USER", "OPERATOR", "ADMIN"]
    least = min(
        order.index(rule.role.name)
        for rule in RULES.values()
        if rule.right is right and rule.mutates
    )
    assert Caller("ada", role).has(right) == (order.index(role) >= least)
