"""Starts the program of the rank, and ends it together with all processes that it has started."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hai_backend.agent.coroutines import Coroutines
from hai_backend.agent.output.output import Output
from hai_backend.agent.program.reaper import Child, Reaper
from hai_backend.agent.rank_dir import RankDir, write_agent_log
from hai_backend.launch import processes

_EXEC = Path(__file__).with_name("exec_program.py")
_DRAIN_SECONDS = 2.0


class Program:
    """A started program: a process group and all its descendants."""

    def __init__(
        self, child: Child, output: Output, directory: RankDir, coroutines: Coroutines
    ) -> None:
        self.pid = child.pid
        self._ended = child.ended
        self._output = output
        self._directory = directory
        self._coroutines = coroutines
        self._is_ending = False
        self._all_killed = asyncio.Event()
        self._kill_timer: asyncio.TimerHandle | None = None
        self._kill_at = float("inf")

    def signal(self, number: int) -> None:
        """Send a signal to the process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds. Of several calls, the earliest SIGKILL is sent."""
        loop = asyncio.get_running_loop()
        if not self._is_ending:
            self._is_ending = True
            self.signal(signal.SIGTERM)
        if loop.time() + grace < self._kill_at:
            self._kill_at = loop.time() + grace
            if self._kill_timer is not None:
                self._kill_timer.cancel()
            self._kill_timer = loop.call_later(grace, self._kill_all)

    async def wait(self, may_be_saving: Callable[[], bool]) -> int:
        """Return the exit code after all processes of the rank have ended and all output was read.

        If `may_be_saving()` is true (a suspend signal was sent), the remaining processes are not killed when the main
        process exits, because a child of a shell script may still save. They have until the output ends or `end` kills
        them.
        """
        code = await self._ended
        if may_be_saving():
            await self._wait_for_output_or_kill()
        await end_everything(self._directory)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._output.ended.wait(), _DRAIN_SECONDS)
        self._output.close()
        return code

    def _kill_all(self) -> None:
        self._coroutines.start("killing the remaining processes", self._kill_remaining())

    async def _kill_remaining(self) -> None:
        await end_everything(self._directory)
        self._all_killed.set()

    async def _wait_for_output_or_kill(self) -> None:
        async with asyncio.TaskGroup() as group:
            either = [group.create_task(e.wait()) for e in (self._output.ended, self._all_killed)]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for waiting in either:
                waiting.cancel()


async def end_everything(directory: RankDir) -> None:
    """Kill all processes of the rank, and return when none is left. Only then may the exit be reported."""
    noted: set[int] = set()
    while remaining := await asyncio.to_thread(directory.end_everything):
        for process in remaining:
            if process.pid not in noted:
                noted.add(process.pid)
                write_agent_log(
                    f"process {process.pid} cannot be ended yet; see `ps {process.pid}`"
                )


def start(
    argv: Sequence[str],
    workspace: Path,
    variables: Mapping[str, str],
    output: Output,
    reaper: Reaper,
    directory: RankDir,
    coroutines: Coroutines,
) -> Program:
    """Start the program in such a way that it is killed when this agent ends."""
    child = reaper.spawn(bind_to_agent(argv), output.write_end, workspace, variables)
    output.close_write_end()
    processes.write_pid_file(directory.program_pid, child.pid)
    return Program(child, output, directory, coroutines)


def find_shell(variables: Mapping[str, str]) -> str:
    """Return the user's shell. Callers must not start it as a login shell: /etc/profile would replace PATH."""
    path = variables.get("PATH", os.defpath)
    candidates = (variables.get("SHELL", ""), "bash", "sh")
    found = (name and shutil.which(name, path=path) for name in candidates)
    return next((name for name in found if name), "/bin/sh")


def bind_to_agent(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs `argv` with exec_program.py, so that it is killed when this agent ends."""
    return (sys.executable, "-I", "-S", str(_EXEC), str(os.getpid()), *argv)
