"""Future wake-ups are returned in order, and each once."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from hai_backend.scheduler.wakeups import Wakeups

NOW = 5.0
SETTERS: dict[str, Callable[[Wakeups, float], None]] = {
    "one": lambda wakeups, at: wakeups.set(at, 1, NOW),
    "once": lambda wakeups, at: wakeups.set_once(at, 1, NOW),
}


@pytest.mark.parametrize("how", SETTERS)
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(4.0, inf, id="past"),
        pytest.param(NOW, inf, id="now"),
        pytest.param(6.0, 6.0, id="to come"),
        pytest.param(inf, inf, id="never"),
    ],
)
def test_past_and_infinite_wake_ups_are_not_stored(how: str, at: float, expected: float) -> None:
    wakeups = Wakeups()
    SETTERS[how](wakeups, at)
    assert wakeups.next_at() == expected


def test_due_wake_ups_come_in_order_and_once() -> None:
    wakeups = Wakeups()
    wakeups.append([(9.0, 3), (7.0, 1)])
    wakeups.sort()
    wakeups.set(8.0, 2, NOW)
    assert list(wakeups.pop_due(6.0)) == []
    assert list(wakeups.pop_due(8.0)) == [1, 2]
    assert list(wakeups.pop_due(9.0)) == [3]
    assert wakeups.next_at() == inf


def test_wake_ups_may_be_set_while_due_ones_are_popped() -> None:
    wakeups = Wakeups()
    wakeups.set(6.0, 1, NOW)
    for task in wakeups.pop_due(7.0):
        wakeups.set(9.0, task + 1, 7.0)
    assert wakeups.next_at() == 9.0


def test_a_repeated_wake_up_is_stored_once() -> None:
    wakeups = Wakeups()
    for _ in range(3):
        wakeups.set_once(6.0, 1, NOW)
    assert list(wakeups.pop_due(6.0)) == [1]
    wakeups.set_once(6.0, 1, NOW)  # the clock was set back
    assert list(wakeups.pop_due(6.0)) == [1]
