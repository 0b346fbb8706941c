"""How the SDK reaches the platform: one small protocol, three worlds.

* in the cluster: `agent.AgentChannel` (a mapped file and the agent's unix socket)
* under simulation (HFAI_SIMULATE=1): `simulated.SimulatedChannel`
* anywhere else: `AbsentChannel`, which does nothing and says so by its return values

The channel is opened on first use, never at import. It holds no connection, thread or lock, so that processes made by
fork (DataLoader workers) and by spawn may use it too.
"""

from __future__ import annotations

import os
import sys
import time

from hai.task import env

TYPE_CHECKING = False  # read as true by type checkers
if TYPE_CHECKING:
    from hai.task.protocol import Answer, Channel, Value

# a simulated suspend counts from the import, not from the first question
STARTED = time.monotonic()


class AgentError(RuntimeError):
    """The agent could not be reached, or did not answer in time."""


class AbsentChannel:
    """Outside the cluster: nothing is asked, nothing is told."""

    def suspend_asked(self) -> bool:
        return False

    def suspend_agreed(self, step: int) -> bool:
        return False

    def go_suspend(self, timeout: float, raise_exception: bool) -> bool:
        return False

    def wait_suspended(self) -> bool:
        return False

    def whole_life_state(self) -> int | None:
        return None

    def tell(self, call: str, timeout: float, **values: Value) -> Answer:
        return {"ok": False}


REPORT_SECONDS = 2.0  # a report is not worth more of the time that a suspend leaves

_current: Channel | None = None
_report_refused = False


def current() -> Channel:
    """The channel of this process, opened at the first call."""
    global _current
    if _current is None:
        _current = _open()
    return _current


def forget() -> None:
    """Open a new channel at the next call: the environment has changed (tests do that)."""
    global _current, _report_refused
    _current, _report_refused = None, False


def _open() -> Channel:
    # First: `hai python FILE ++` may be typed inside a task
    if os.environ.get(env.SIMULATE) == "1":
        from hai.task.simulated import SimulatedChannel

        return SimulatedChannel.from_environ(os.environ)
    if env.CONTROL_FILE in os.environ and env.AGENT_SOCKET in os.environ:
        from hai.task.agent import AgentChannel

        return AgentChannel.from_environ(os.environ)
    return AbsentChannel()


def report_saved(seconds: float, step: int) -> bool:
    """Tell the agent of a checkpoint: not worth an exception, nor a second line of log about the same fault."""
    global _report_refused
    try:  # float and int also make numbers of NumPy's
        values: dict[str, Value] = {"seconds": round(float(seconds), 6), "step": int(step)}
        answer = current().tell("checkpoint_saved", REPORT_SECONDS, **values)
        error = answer.get("error")
    except (AgentError, TypeError, ValueError) as failed:
        answer, error = {}, failed
    if error and not _report_refused:
        _report_refused = True
        say(f"a checkpoint was not reported: {error}")
    return bool(answer.get("ok"))


def say(message: str) -> None:
    """One line to standard error, which is the task's log."""
    print(f"hai: {message}", file=sys.stderr, flush=True)
