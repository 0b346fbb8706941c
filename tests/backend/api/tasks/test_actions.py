"""The rate limit of priority changes."""

from __future__ import annotations

import pytest

from hai_backend.api.tasks.actions import PriorityRateLimit
from hai_backend.auth.permissions import Identity
from hai_backend.domain.accounts.user import Role, User
from hai_backend.domain.errors import Exhausted
from hai_backend.testing import ManualClock

ADA, OPERATOR = Identity(User("ada")), Identity(User("olga", Role.OPERATOR))


@pytest.mark.parametrize(
    ("identity", "seconds", "refused"),
    [
        pytest.param(ADA, 9.0, True, id="too soon"),
        pytest.param(OPERATOR, 9.0, False, id="operators may"),
        pytest.param(ADA, 10.0, False, id="late enough"),
        pytest.param(ADA, -3600.0, False, id="the clock was set back"),
    ],
)
def test_priority_changes_are_rate_limited(
    identity: Identity, seconds: float, refused: bool
) -> None:
    clock = ManualClock()
    pace = PriorityRateLimit(clock)
    pace.record_change(7)
    clock.advance(seconds)
    if refused:
        with pytest.raises(Exhausted, match=r"try again in 1.0 s"):
            pace.check(identity, 7)
    else:
        pace.check(identity, 7)
