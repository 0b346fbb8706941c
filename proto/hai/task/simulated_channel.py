"""Simulates the platform for `hai python FILE ++`, with one rank and a suspend after a number of seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from hai.task import env

TYPE_CHECKING = False  # type checkers assume True
if TYPE_CHECKING:
    from hai.task.channel import Answer, Value


def _number(variables: Mapping[str, str], name: str) -> float | None:
    text = variables.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{name} is {text!r}; set it to a number") from None


class SimulatedChannel:
    """Stores the state, requests a suspend at `suspend_at` (None means never), and exits when the program suspends."""

    def __init__(
        self, suspend_at: float | None, state: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._suspend_at = suspend_at
        self._state = state
        self._clock = clock

    @classmethod
    def from_environ(cls, variables: Mapping[str, str], started_at: float) -> SimulatedChannel:
        """SIMULATE_SUSPEND counts seconds from `started_at`."""
        after = _number(variables, env.SIMULATE_SUSPEND)
        state = _number(variables, env.WHOLE_LIFE_STATE)
        return cls(None if after is None else started_at + after, int(state or 0))

    def suspend_requested(self) -> bool:
        return self._suspend_at is not None and self._clock() >= self._suspend_at

    def suspend_agreed(self, step: int) -> bool:
        return self.suspend_requested()  # a simulated task has only one rank

    def go_suspend(self, timeout: float, raise_exception: bool) -> bool:
        sys.exit(0)

    def wait_suspended(self) -> bool:
        sys.exit(0)

    def set_save_progress(self, saved: int, total: int) -> None:
        return None

    def whole_life_state(self) -> int | None:
        return self._state

    def request(self, call: str, timeout: float, **values: Value) -> Answer:
        if call != "set_whole_life_state":
            return {"ok": True}
        before, self._state = self._state, int(values["value"])
        return {"ok": True, "changed": before != self._state}
