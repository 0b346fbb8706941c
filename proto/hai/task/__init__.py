"""The in-task SDK. A program in a task uses it to detect suspend requests and to report to the platform.

    for step in range(first_step, steps):
        if hai.suspend_agreed(step):            # or receive_suspend_command() in a single process
            checkpoint.save("model", write, step=step)
            hai.go_suspend()                    # never returns in a task
        train(step)

Names, parameters and results are those of `hfai.client`, with these differences: every rank gets the suspend request
(in HAI, only rank 0); `suspend_agreed`, `wait_suspended`, `checkpoint`, `checkpoint_saved` and `integrations` are new;
and outside the cluster, nothing is printed. The calls return:

========================  ==========================  ==========================  ==================
call                      in a task                   HFAI_SIMULATE=1             elsewhere
========================  ==========================  ==========================  ==================
receive_suspend_command   requested?                  SIMULATE_SUSPEND s passed?  False
suspend_agreed            stop before this step?      SIMULATE_SUSPEND s passed?  False
go_suspend                never returns [1]           exits 0                     False
wait_suspended            never returns [1]           exits 0                     False
get_whole_life_state      int                         int                         None
set_whole_life_state      True if it was changed      True if it was changed      False
set_watchdog_time         True when set               True                        False
set_priority              True if granted             True                        False
checkpoint_saved          True if accepted            True                        False
disable_warn              True, without effect [2]    True                        False
========================  ==========================  ==========================  ==================

[1] In a dev container, both print the reason and return False, because its programs cannot end its run.
[2] The platform sends no warnings by default. Select messages with `hai webhook set NAME --on failed --tag TAG`.
"""

from __future__ import annotations

import os

from hai.task import env
from hai.task.channel import AgentError, log_line
from hai.task.current_channel import current, report_saved

TYPE_CHECKING = False  # type checkers assume True
if TYPE_CHECKING:
    from hai.task.channel import Answer, Value
    from hai.task.gpu import print_gpu_info as print_gpu_info
    from hai.task.health import HealthReport as HealthReport
    from hai.task.health import self_health_check as self_health_check
    from hai.task.hook import bind_hf_except_hook as bind_hf_except_hook
    from hai.task.levels import EXP_PRIORITY as EXP_PRIORITY
    from hai.task.levels import WARN_TYPE as WARN_TYPE

__all__ = [  # noqa: RUF022 - in the order of the documentation
    "receive_suspend_command",
    "suspend_agreed",
    "go_suspend",
    "wait_suspended",
    "get_whole_life_state",
    "set_whole_life_state",
    "set_watchdog_time",
    "set_priority",
    "checkpoint_saved",
    "disable_warn",
    "EXP_PRIORITY",
    "WARN_TYPE",
    "AgentError",
    "nb_name",
    "task_id",
    "rank",
    "node_name",
    "print_gpu_info",
    "self_health_check",
    "HealthReport",
    "bind_hf_except_hook",
    "checkpoint",
    "integrations",
]

_LAZY = {
    "checkpoint": "",
    "integrations": "",
    "print_gpu_info": "gpu",
    "self_health_check": "health",
    "HealthReport": "health",
    "bind_hf_except_hook": "hook",
    "EXP_PRIORITY": "levels",
    "WARN_TYPE": "levels",
}
_CALL_SECONDS = 60.0  # for calls whose signature has no timeout


if not TYPE_CHECKING:  # so that type checkers find misspelt names

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module 'hai.task' has no attribute {name!r}")
        import importlib

        module = importlib.import_module(f"hai.task.{_LAZY[name] or name}")
        return getattr(module, name) if _LAZY[name] else module


def receive_suspend_command(timeout: float = 500, raise_exception: bool = False) -> bool:
    """Return whether the platform has requested a suspend. If so, save and call go_suspend().

    A call takes less than a microsecond. The first call that returns True acknowledges the request with one call to the
    agent, which takes at most two seconds. The parameters have no effect; they exist for compatibility with HAI.
    """
    return current().suspend_requested()


def suspend_agreed(step: int) -> bool:
    """Return whether every rank must save and suspend before step `step`. Call it before each step, in every process.

    All ranks get True for the same step without communicating with each other, because the platform chooses the first
    step that no rank has entered. Step numbers may have gaps, but must be the same on all ranks.
    """
    return current().suspend_agreed(step)


def go_suspend(timeout: float = 500, raise_exception: bool = False) -> bool:
    """Report that the task has saved. Its ranks are then terminated, and started again later. Never returns in a task.

    One call suspends all ranks, so call it after every rank has saved. Ranks that do not save call wait_suspended().
    If the agent does not answer within `timeout` seconds, the call waits for termination, or raises AgentError if
    `raise_exception` is set. In a dev container, where the platform saves the notebooks, it prints that it does nothing
    and returns False.
    """
    return current().go_suspend(timeout, raise_exception)


def wait_suspended() -> bool:
    """Wait until the platform terminates this rank, because another rank has saved and calls go_suspend().

    Never returns in a task.
    """
    return current().wait_suspended()


def get_whole_life_state() -> int | None:
    """Return the integer that the platform stores for this task over all its runs; None outside the cluster."""
    return current().whole_life_state()


def set_whole_life_state(state: int, timeout: float = 500, raise_exception: bool = True) -> bool:
    """Store `state` for the later runs of the task. Return whether it was stored and differs from the previous value.

    Raises AgentError if the agent does not answer within `timeout` seconds, or returns False then if `raise_exception`
    is False.
    """
    try:
        answer = current().request("set_whole_life_state", timeout, value=int(state))
    except AgentError as error:
        if raise_exception:
            raise
        log_line(str(error))
        return False
    return _accepted("set_whole_life_state", answer) and bool(answer.get("changed"))


def set_watchdog_time(seconds: int) -> bool:
    """Set how many seconds without output the task may run before it counts as hung (default 1800; 0 means no limit).

    Return whether the limit was set.
    """
    if seconds < 0:
        raise ValueError(f"set_watchdog_time({seconds}): give a number of seconds, or 0 for never")
    return _request("set_watchdog_time", seconds=seconds)


def set_priority(priority: int) -> bool:
    """Request another priority (EXP_PRIORITY). Return False and print the reason if it is refused."""
    from hai.task.levels import EXP_PRIORITY

    return _request("set_priority", priority=int(EXP_PRIORITY(priority)))


def checkpoint_saved(seconds: float = 0.0, step: int = -1) -> bool:
    """Report that the program has saved. `seconds` is for how long this paused its work (0 if unknown).

    hai.task.checkpoint and the integrations call it themselves. The reports tell the platform how much work a suspend
    would lose, and `hai status` uses them to recommend how often to save. Return whether the report was accepted. Never
    raises; only the first error is printed.
    """
    return report_saved(seconds, step)


def disable_warn(mask: int) -> bool:
    """Do nothing. The call exists for compatibility with HAI; only webhooks send messages here."""
    return _request("disable_warn", mask=int(mask))


def nb_name() -> str | None:
    """Return the name of this task; None outside the cluster."""
    return os.environ.get(env.TASK_NAME)


def task_id() -> int | None:
    """Return the id of this task; None outside the cluster."""
    text = os.environ.get(env.TASK_ID)
    return int(text) if text else None


def rank() -> int:
    """Return the index of this node in the task, from 0. In contrast, the RANK of torchrun counts processes."""
    return int(os.environ.get(env.NODE_RANK) or os.environ.get(env.RANK) or 0)


def node_name() -> str | None:
    """Return the name of the node; None outside the cluster."""
    return os.environ.get(env.NODE_NAME)


def _request(call: str, **values: Value) -> bool:
    try:
        return _accepted(call, current().request(call, _CALL_SECONDS, **values))
    except AgentError as error:
        log_line(str(error))
        return False


def _accepted(call: str, answer: Answer) -> bool:
    if "error" in answer:
        log_line(f"{call} was refused: {answer['error']}")
    return bool(answer.get("ok"))
