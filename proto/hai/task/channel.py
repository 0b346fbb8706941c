"""The protocol between the SDK and the platform, and what its three channels share.

* in the cluster: `agent_channel.AgentChannel` (a mapped file and the agent's unix socket)
* under simulation (HFAI_SIMULATE=1): `simulated_channel.SimulatedChannel`
* anywhere else: `current_channel.OfflineChannel`, which does nothing and says so by its return values
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # read as true by type checkers; to load typing would double the import time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    Answer = Mapping[str, object]
    Value = int | float | str | bool

    class Channel(Protocol):
        """The way to the platform; hai.task documents each call for users."""

        def suspend_requested(self) -> bool:
            """Whether the platform has requested a suspend. The first true answer acknowledges the request."""

        def suspend_agreed(self, step: int) -> bool:
            """Record that `step` is next. True if all ranks stop before this step."""

        def go_suspend(self, timeout: float, raise_exception: bool) -> bool:
            """Report that the task has saved, and wait until the platform terminates this rank."""

        def wait_suspended(self) -> bool:
            """Wait until the platform terminates this rank."""

        def whole_life_state(self) -> int | None:
            """The current value."""

        def request(self, call: str, timeout: float, **values: Value) -> Answer:
            """Make one call of the agent's protocol and return its answer (`ok` and more)."""


class AgentError(RuntimeError):
    """The agent could not be reached, or did not answer in time."""


def log_line(message: str) -> None:
    """Print one line to standard error, which is the task's log."""
    print(f"hai: {message}", file=sys.stderr, flush=True)
