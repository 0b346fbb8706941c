"""The platform as `hai python FILE ++` pretends it to be: one rank, and a suspend after a number of seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from hai.task import channel, env

TYPE_CHECKING = False  # read as true by type checkers
if TYPE_CHECKING:
    from hai.task.protocol import Answer, Value


def _number(variables: Mapping[str, str], name: str) -> float | None:
    text = variables.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"{name} is {text!r}; set it to a number") from None


class SimulatedChannel:
    """Remembers what is set, asks to suspend at `suspend_at` (None: never), and ends the process when it yields."""

    def __init__(
        self, suspend_at: float | None, state: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._suspend_at = suspend_at
        self._state = state
        self._clock = clock

    @classmethod
    def from_environ(cls, variables: Mapping[str, str]) -> SimulatedChannel:
        after = _number(variables, env.SIMULATE_SUSPEND)
        state = _number(variables, env.WHOLE_LIFE_STATE)
        return cls(None if after is None else channel.STARTED + after, int(state or 0))

    def suspend_asked(self) -> bool:
        return self._suspend_at is not None and self._clock() >= self._suspend_at

    def suspend_agreed(self, step: int) -> bool:
        return self.suspend_asked()  # a simulated task has one rank: it agrees with itself

    def go_suspend(self, timeout: float, raise_exception: bool) -> bool:
        sys.exit(0)

    def wait_suspended(self) -> bool:
        sys.exit(0)

    def whole_life_state(self) -> int | None:
        return self._state

    def tell(self, call: str, timeout: float, **values: Value) -> Answer:
        if call != "set_whole_life_state":
            return {"ok": True}
        before, self._state = self._state, int(values["value"])
        return {"ok": True, "changed": before != self._state}
