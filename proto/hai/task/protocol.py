"""What each world must be able to do. Only type checkers import this module: typing would double the import time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Answer = Mapping[str, object]
Value = int | float | str | bool


class Channel(Protocol):
    """The way to the platform; hai.task documents for users what each verb means."""

    def suspend_asked(self) -> bool:
        """Is this task asked to leave? The first true answer acknowledges."""

    def suspend_agreed(self, step: int) -> bool:
        """Note that `step` is next; is it the step before which all ranks leave?"""

    def go_suspend(self, timeout: float, raise_exception: bool) -> bool:
        """Say that the task has saved, and wait to be ended."""

    def wait_suspended(self) -> bool:
        """Wait to be ended."""

    def whole_life_state(self) -> int | None:
        """Its present value."""

    def tell(self, call: str, timeout: float, **values: Value) -> Answer:
        """Make one call of the agent's protocol and return its answer (`ok` and more)."""
