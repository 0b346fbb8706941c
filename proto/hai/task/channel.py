"""The interface between the SDK and the platform. It has three implementations:

* in the cluster: `agent_channel.AgentChannel`, with a memory-mapped file and the agent's unix socket
* in a simulation (HFAI_SIMULATE=1): `simulated_channel.SimulatedChannel`
* elsewhere: `current_channel.OfflineChannel`, which does nothing; its return values show this
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # type checkers assume True; an import of typing would double the import time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    Answer = Mapping[str, object]
    Value = int | float | str | bool

    class Channel(Protocol):
        """A connection to the platform. hai.task documents each call for users."""

        def suspend_requested(self) -> bool:
            """Return whether the platform has requested a suspend. The first True acknowledges the request."""

        def suspend_agreed(self, step: int) -> bool:
            """Record that `step` is next. Return whether all ranks stop before this step."""

        def go_suspend(self, timeout: float, raise_exception: bool) -> bool:
            """Report that the task has saved, and wait until the platform terminates this rank.

            Return False where this is not possible.
            """

        def wait_suspended(self) -> bool:
            """Wait until the platform terminates this rank. Return False where this is not possible."""

        def set_save_progress(self, saved: int, total: int) -> None:
            """Publish how many of the state's bytes are saved. 0, 0 means that this process does not save."""

        def whole_life_state(self) -> int | None:
            """Return the current whole-life state; None outside the cluster."""

        def request(self, call: str, timeout: float, **values: Value) -> Answer:
            """Make one call to the agent and return its answer, which has `ok` and other fields.

            Raises AgentError if there is no answer within `timeout` seconds.
            """


class AgentError(RuntimeError):
    """The agent could not be reached, or did not answer in time."""


def log_line(message: str) -> None:
    """Print one line to standard error, which is the task's log."""
    print(f"hai: {message}", file=sys.stderr, flush=True)
