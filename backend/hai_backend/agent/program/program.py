"""The program as the agent sees it: started once, ended for certain, with nothing of it left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hai_backend.agent.output import agent_log
from hai_backend.agent.output.output import Output
from hai_backend.agent.program.reaper import Child, Reaper
from hai_backend.agent.rank_dir import RankDir
from hai_backend.agent.task_group import Parts
from hai_backend.launch import processes

_EXEC = Path(__file__).with_name("exec_program.py")
_DRAIN_SECONDS = 2.0


class Program:
    """A process group and everything that descends from it."""

    def __init__(self, child: Child, output: Output, directory: RankDir, parts: Parts) -> None:
        self.pid = child.pid
        self._ended = child.ended
        self._output = output
        self._directory = directory
        self._parts = parts
        self._ending = False
        self._killed = asyncio.Event()
        self._kill: asyncio.TimerHandle | None = None
        self._kill_at = float("inf")

    def signal(self, number: int) -> None:
        """To the process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self, grace: float) -> None:
        """SIGTERM, then SIGKILL after `grace` seconds; asked again, the earlier moment counts."""
        loop = asyncio.get_running_loop()
        if not self._ending:
            self._ending = True
            self.signal(signal.SIGTERM)
        if loop.time() + grace < self._kill_at:
            self._kill_at = loop.time() + grace
            if self._kill is not None:
                self._kill.cancel()
            self._kill = loop.call_later(grace, self._kill_all)

    async def wait(self, *, saving: Callable[[], bool]) -> int:
        """The exit code, once no process of the rank is left and all it printed was read.

        While the program is `saving` after a suspend signal, what a script has started may finish after the script.
        """
        code = await self._ended
        if saving():
            await self._end_of_output_or_kill()
        await end_everything(self._directory)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._output.ended.wait(), _DRAIN_SECONDS)
        self._output.close()
        return code

    def _kill_all(self) -> None:
        self._parts.begin("the end by force", self._kill_remaining())

    async def _kill_remaining(self) -> None:
        await end_everything(self._directory)
        self._killed.set()

    async def _end_of_output_or_kill(self) -> None:
        async with asyncio.TaskGroup() as group:
            either = [group.create_task(e.wait()) for e in (self._output.ended, self._killed)]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for waiting in either:
                waiting.cancel()


async def end_everything(directory: RankDir) -> None:
    """Return when no process of the rank is left: only then may the server hear that it has ended."""
    noted: set[int] = set()
    while remaining := await asyncio.to_thread(directory.end_everything):
        for process in remaining:
            if process.pid not in noted:
                noted.add(process.pid)
                agent_log.note(f"process {process.pid} cannot be ended yet; see `ps {process.pid}`")


def start(
    argv: Sequence[str],
    workspace: Path,
    variables: Mapping[str, str],
    output: Output,
    reaper: Reaper,
    directory: RankDir,
    parts: Parts,
) -> Program:
    """Start the program through program/exec_program.py, which binds its life to ours."""
    child = reaper.spawn(bound_to_us(argv), output.write_end, workspace, variables)
    output.close_write_end()
    processes.write_pid_file(directory.program_pid, child.pid)
    return Program(child, output, directory, parts)


def usual_shell(variables: Mapping[str, str]) -> str:
    """Of who works here. Not for a login: /etc/profile would set PATH anew, without the programs of the environment."""
    path = variables.get("PATH", os.defpath)
    candidates = (variables.get("SHELL", ""), "bash", "sh")
    found = (name and shutil.which(name, path=path) for name in candidates)
    return next((name for name in found if name), "/bin/sh")


def bound_to_us(argv: Sequence[str]) -> tuple[str, ...]:
    """The same command through program/exec_program.py: it does not outlive this agent."""
    return (sys.executable, "-I", "-S", str(_EXEC), str(os.getpid()), *argv)
