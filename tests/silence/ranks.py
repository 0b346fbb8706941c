"""The process ids of a rank by name: supervisor, agent, program."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from hai_backend.launch import processes
from hai_backend.launch.rank_dirs import AGENT_PID, PROGRAM_PID


class Pids:
    """Finds the processes of the rank in a directory."""

    def __init__(self, rank_dir: Path) -> None:
        self._rank_dir = rank_dir

    def named(self) -> dict[str, int]:
        """Return the process ids of the live processes by name."""
        supervisor = processes.read_pid_file(self._rank_dir / AGENT_PID)
        ran = processes.read_pid_file(self._rank_dir / PROGRAM_PID)
        found = {} if ran is None else {"program": ran.pid}
        if supervisor is None:
            return found
        children = [p for p in processes.descendants(supervisor.pid) if p.parent == supervisor.pid]
        agent = next(
            (p.pid for p in children if b"hai_backend.agent" in command(p.pid)), supervisor.pid
        )
        return {**found, "supervisor": supervisor.pid, "agent": agent}


def command(pid: int) -> bytes:
    """Return the command line of a process, separated by spaces, or empty bytes if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal. Does nothing if the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
