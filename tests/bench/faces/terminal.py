"""A program on a pseudo terminal, and how long it takes to react to a key."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_SILENCE = 0.04  # after so long without output, the reaction is complete
_TICKS = os.sysconf("SC_CLK_TCK")


class Terminal:
    """Starts a command on a pseudo terminal, sends keys, and keeps its output since the last key."""

    def __init__(self, command: Sequence[str], env: dict[str, str], size: tuple[int, int]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self.painted = b""
        self._last = 0.0
        self._heard = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        try:
            self.painted += os.read(self._master, 1 << 16)
        except OSError:
            asyncio.get_running_loop().remove_reader(self._master)
        self._last = time.perf_counter()
        self._heard.set()

    async def until(self, text: str, patience: float = 60.0) -> float:
        """Wait until the text has been painted since the last `press`, and return the time of the last output."""
        async with asyncio.timeout(patience):
            while text.encode() not in self.painted:
                self._heard.clear()
                await self._heard.wait()
        return self._last

    def press(self, keys: str) -> float:
        """Send keys, and return the time."""
        self.painted = b""
        os.write(self._master, keys.encode())
        return time.perf_counter()

    async def answered(self, keys: str) -> float:
        """Return the seconds from a key to the last output that it causes."""
        began = self.press(keys)
        self._last = 0.0
        await self._next(5.0)
        while await self._next(_SILENCE):
            pass
        return self._last - began

    async def cost(self, keys: str) -> tuple[float, float]:
        """Return the seconds from a key to the last output that it causes, and the CPU seconds of all threads."""
        used = self.thread_seconds()
        waited = await self.answered(keys)
        return waited, self.thread_seconds() - used

    def thread_seconds(self) -> float:
        """Return the CPU seconds of live threads, more precisely than `cpu_seconds`, which has hundredths."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9

    async def _next(self, seconds: float) -> bool:
        self._heard.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        except TimeoutError:
            return False
        return True

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_bytes(self) -> int:
        """Return the resident memory."""
        line = next(
            line
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        )
        return int(line.split()[1]) * 1024

    async def end(self) -> None:
        """Send SIGTERM, and wait until the program has ended."""
        self.process.send_signal(signal.SIGTERM)
        wait: Callable[[], int] = lambda: self.process.wait(20)  # noqa: E731
        await asyncio.to_thread(wait)
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
