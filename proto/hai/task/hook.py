"""Lets a worker process that ends with an error first check whether its node is broken.

The target function of each process is wrapped when the process is started, so the hook works for children made by
fork, spawn and forkserver. torch.multiprocessing.spawn converts an error to exit code 1, so a non-zero exit code counts
as an error.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hai.task.channel import AgentError, log_line
from hai.task.current_channel import current
from hai.task.health import HealthReport, self_health_check

_REPORT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Guarded:
    """A function that calls `target`. After an error that would end the process, it checks and reports the node."""

    target: Callable[..., object]

    def __call__(self, *arguments: object, **options: object) -> object:
        try:
            return self.target(*arguments, **options)
        except SystemExit as error:
            if error.code not in (None, 0):
                report(self_health_check(), f"a worker exited with {error.code}")
            raise
        except Exception as error:
            report(self_health_check(), f"a worker died of {type(error).__name__}: {error}")
            raise


def bind_hf_except_hook(Process: type[Any]) -> None:
    """Check the node after each uncaught error in a process of this class, such as torch.multiprocessing.Process.

    The report is printed. If the node seems broken, the report is also sent to the platform, which restarts the task on
    other nodes.
    """
    base: Any = next((c for c in Process.__mro__ if c.__name__ == "BaseProcess"), Process)
    start = base.start
    if getattr(start, "_hai", False):
        return

    @functools.wraps(start)
    def guarded_start(process: Any) -> None:
        target = getattr(process, "_target", None)
        if target is not None and not isinstance(target, Guarded):
            process._target = Guarded(target)
        start(process)

    guarded_start._hai = True  # type: ignore[attr-defined]
    base.start = guarded_start


def report(health: HealthReport, cause: str) -> None:
    """Print the report, and send it to the platform if the node is broken."""
    log_line(f"{cause} (process {os.getpid()}); {health}")
    if health.healthy:
        return
    try:
        answer = current().request(
            "report_node", _REPORT_SECONDS, healthy=False, error=f"{cause}; {health}"
        )
    except AgentError as error:
        log_line(str(error))
        return
    if "error" in answer:
        log_line(f"the node could not be reported: {answer['error']}")
