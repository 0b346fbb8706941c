"""A container as a real local process, in a session of its own, with everything that it starts.

It stands for PID 1 of a container: a signal for which it has no handler is not delivered to it, as the kernel does it
there, and whatever is left when it ends is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hai_backend.launch.processes import Process, all_processes, kill_all
from hai_backend.testing.kube.kubelet.logs import Output
from hai_backend.testing.kube.timers import Timers

_MARK = "HAI_FAKE_CONTAINER"
_READ_BYTES = 1 << 16


class Program:
    """Started when made. Raises OSError when it cannot be."""

    def __init__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], mark: str, timers: Timers
    ) -> None:
        self.output = Output()
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._timers = timers
        self._mark = f"{_MARK}={mark}".encode()
        self._pipe, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**env, _MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(writing)
        self._follow()

    @property
    def pid(self) -> int:
        return self._process.pid

    def terminate(self) -> None:
        """SIGTERM, if it has a handler for it."""
        if not self.exited.done() and _handles(self.pid, signal.SIGTERM):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, to it and to everything that it has started."""
        if not self.exited.done():
            os.killpg(self.pid, signal.SIGKILL)

    def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(self._pipe, False)
        self._fd = os.pidfd_open(self.pid)
        loop.add_reader(self._pipe, self._read)
        loop.add_reader(self._fd, self._ended)

    def _read(self) -> bool:
        """Take what is there; answers whether there may be more."""
        try:
            data = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self.output.feed(self._timers.now(), data)
        else:
            asyncio.get_running_loop().remove_reader(self._pipe)
        return bool(data)

    def _ended(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._fd)
        os.close(self._fd)
        kill_all(self._others)  # before it is reaped: its session's number is its own until then
        code = self._process.wait()
        while self._read():
            pass
        loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self.output.end(self._timers.now())
        if not self.exited.done():
            self.exited.set_result(code if code >= 0 else 128 - code)

    def _others(self) -> Iterator[Process]:
        for process in all_processes():
            if process.session == self.pid or self._mark in _variables(process.pid):
                yield process


def _handles(pid: int, number: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line for line in text.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def _variables(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []  # gone, or another user's
