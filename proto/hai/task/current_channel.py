"""The channel of this process. It is opened at its first use, not at the import.

It has no connection, thread or lock, so child processes made by fork (DataLoader workers) or spawn may use it, too.
"""

from __future__ import annotations

import contextlib
import os
import time

from hai.task import env
from hai.task.channel import AgentError, log_line

TYPE_CHECKING = False  # type checkers assume True
if TYPE_CHECKING:
    from hai.task.channel import Answer, Channel, Value

REPORT_SECONDS = 2.0  # short, because a report must not use up the time to save
_IMPORTED_AT = time.monotonic()  # the time to a simulated suspend counts from the import


class OfflineChannel:
    """The channel outside the cluster. Its calls do nothing."""

    def suspend_requested(self) -> bool:
        return False

    def suspend_agreed(self, step: int) -> bool:
        return False

    def go_suspend(self, timeout: float, raise_exception: bool) -> bool:
        return False

    def wait_suspended(self) -> bool:
        return False

    def set_save_progress(self, saved: int, total: int) -> None:
        return None

    def whole_life_state(self) -> int | None:
        return None

    def request(self, call: str, timeout: float, **values: Value) -> Answer:
        return {"ok": False}


_current: Channel | None = None
_report_refused = False


def current() -> Channel:
    """Return the channel of this process. It is opened at the first call."""
    global _current
    if _current is None:
        _current = _open()
    return _current


def reset() -> None:
    """Open a new channel at the next call, for tests that change the environment."""
    global _current, _report_refused
    _current, _report_refused = None, False


def _open() -> Channel:
    # Check for a simulation first, because `hai python FILE ++` may be run inside a task.
    if os.environ.get(env.SIMULATE) == "1":
        from hai.task.simulated_channel import SimulatedChannel

        return SimulatedChannel.from_environ(os.environ, _IMPORTED_AT)
    if env.CONTROL_FILE in os.environ and env.AGENT_SOCKET in os.environ:
        from hai.task.agent_channel import AgentChannel

        return AgentChannel.from_environ(os.environ)
    return OfflineChannel()


def report_lost(step: int, node: str, resumed_step: int) -> None:
    """Report that a checkpoint was lost with the memory of a node. `resumed_step` is -1 if the program begins anew."""
    with contextlib.suppress(AgentError):  # the log of the task says it, too
        current().request(
            "checkpoint_lost", REPORT_SECONDS, step=step, node=node, resumed_step=resumed_step
        )


def report_loaded(seconds: float) -> None:
    """Report that the program has loaded its state. Agents of earlier releases do not know this call."""
    with contextlib.suppress(AgentError):
        current().request("checkpoint_loaded", REPORT_SECONDS, seconds=round(seconds, 6))


def report_saved(seconds: float, step: int) -> bool:
    """Report a checkpoint to the agent. Return whether it was accepted.

    An error must not stop the training, so it never raises, and logs only the first error.
    """
    global _report_refused
    try:  # float and int also convert numbers of NumPy
        values: dict[str, Value] = {"seconds": round(float(seconds), 6), "step": int(step)}
        answer = current().request("checkpoint_saved", REPORT_SECONDS, **values)
        error = answer.get("error")
    except (AgentError, TypeError, ValueError) as failed:
        answer, error = {}, failed
    if error and not _report_refused:
        _report_refused = True
        log_line(f"a checkpoint was not reported: {error}")
    return bool(answer.get("ok"))


class SaveProgress:
    """Publishes how many of the `size` bytes of a checkpoint are saved, until `end`."""

    def __init__(self, size: int) -> None:
        self._saved, self._size = 0, size

    def __enter__(self) -> SaveProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def add(self, count: int) -> None:
        self.set(self._saved + count)

    def set(self, saved: int) -> None:
        self._saved = saved
        current().set_save_progress(saved, max(self._size, saved))

    def end(self) -> None:
        current().set_save_progress(0, 0)
