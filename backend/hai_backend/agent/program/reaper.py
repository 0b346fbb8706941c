"""Starts the children of the agent. Reaps them, and orphans of the program, when they exit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Child:
    """A process that the agent has started. The result of `ended` is its exit code; 128+n if signal n killed it."""

    pid: int
    ended: asyncio.Future[int]


class Reaper:
    """Waits for all children of the agent. There is one Reaper, and no other code may call waitpid."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._futures: dict[int, asyncio.Future[int]] = {}
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def spawn(
        self,
        argv: Sequence[str],
        output: int,
        cwd: Path,
        variables: Mapping[str, str],
        *,
        stdin: int = subprocess.DEVNULL,
        error: int | None = None,
    ) -> Child:
        """Start a child in a new POSIX session. Its standard error goes to `output` if `error` is None."""
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=output,
            stderr=output if error is None else error,
            cwd=cwd,
            env=variables,
            start_new_session=True,
        )
        process.returncode = 0  # so that Popen does not call waitpid
        ended = self._futures[process.pid] = self._loop.create_future()
        return Child(process.pid, ended)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = self._futures.pop(pid, None)
            if ended is not None and not ended.done():
                ended.set_result(exit_code(status))


def exit_code(status: int) -> int:
    """Convert a wait status to an exit code as shells do: 128+n if signal n killed the process."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
