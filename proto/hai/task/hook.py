"""A worker process that dies of an error first checks whether its node is broken.

The target of each process is wrapped when the process is started, so the hook reaches children made by fork, spawn and
forkserver alike. torch.multiprocessing.spawn turns an error into exit code 1, so a non-zero exit counts as an error.
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
    """Calls `target`; on an error that would end the process, checks the node and reports it if it looks broken."""

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
    """From now on, an uncaught error in a process of this class (e.g. torch.multiprocessing.Process) checks the node.

    The report is printed. If the node looks broken the platform gets it too, and restarts the task elsewhere.
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
