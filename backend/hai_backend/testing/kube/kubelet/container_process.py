"""A container as a local process in its own session, with all processes that it starts.

The process has the role of PID 1 of a container. As for PID 1, a signal without a handler has no effect, and all
remaining processes are killed when it ends.
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


class ContainerProcess:
    """A process that starts when this object is created. Raises OSError if it cannot be started."""

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
        self._watch()

    @property
    def pid(self) -> int:
        return self._process.pid

    def terminate(self) -> None:
        """Send SIGTERM, if the process has a handler for it."""
        if not self.exited.done() and _has_handler(self.pid, signal.SIGTERM):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process group."""
        if not self.exited.done():
            os.killpg(self.pid, signal.SIGKILL)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        os.set_blocking(self._pipe, False)
        self._pidfd = os.pidfd_open(self.pid)
        loop.add_reader(self._pipe, self._read)
        loop.add_reader(self._pidfd, self._handle_end)

    def _read(self) -> bool:
        """Read available output. Return whether there may be more."""
        try:
            data = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self.output.feed(self._timers.now(), data)
        else:
            asyncio.get_running_loop().remove_reader(self._pipe)
        return bool(data)

    def _handle_end(self) -> None:
        """Kill the remaining processes, read the remaining output, and set the exit code."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        kill_all(
            self._remaining
        )  # before wait(), because its session number may be reused after that
        code = self._process.wait()
        while self._read():
            pass
        loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self.output.end(self._timers.now())
        if not self.exited.done():
            self.exited.set_result(code if code >= 0 else 128 - code)

    def _remaining(self) -> Iterator[Process]:
        for process in all_processes():
            if process.session == self.pid or self._mark in _variables(process.pid):
                yield process


def _has_handler(pid: int, number: int) -> bool:
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
        return []  # the process has ended, or belongs to another user
