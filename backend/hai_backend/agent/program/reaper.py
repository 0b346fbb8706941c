"""Collects every child that ends: the program, helpers, and orphans of the program that became ours."""

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
    """A process that we started; `ended` answers its exit code, 128+n when signal n killed it."""

    pid: int
    ended: asyncio.Future[int]


class Reaper:
    """One per agent: waits for all children, so nothing else may."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._expected: dict[int, asyncio.Future[int]] = {}
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
        """Start a child in a session of its own; what it says goes to one descriptor, unless `error` is another."""
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=output,
            stderr=output if error is None else error,
            cwd=cwd,
            env=variables,
            start_new_session=True,
        )
        process.returncode = 0  # we wait for it, not Popen
        ended = self._expected[process.pid] = self._loop.create_future()
        return Child(process.pid, ended)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = self._expected.pop(pid, None)
            if ended is not None and not ended.done():
                ended.set_result(exit_code(status))


def exit_code(status: int) -> int:
    """A wait status as the shell says it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
