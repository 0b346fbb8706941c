"""Simulated programs. They work, print and save, and react to signals and requests or ignore them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.support.virtual_time import SimulatedProcess, run_outside

_SIGTERM, _SIGKILL = 143, 137
_WORK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ProgramBehavior:
    """How a program behaves."""

    print_seconds: float  # between two lines; 0 if it prints nothing
    obeys: bool  # whether SIGTERM ends it; SIGKILL always does
    saves: bool  # whether it acknowledges suspend requests
    yields: bool  # whether it then reports that it has saved
    dying_seconds: float  # between SIGKILL and its end, while the kernel holds it

    @staticmethod
    def of(random: Random, longest_dying: float) -> ProgramBehavior:
        """Any."""
        return ProgramBehavior(
            print_seconds=random.choice((0.0, random.uniform(1.0, 8.0))),
            obeys=random.random() < 0.5,
            saves=random.random() < 0.7,
            yields=random.random() < 0.8,
            dying_seconds=random.choice((0.0, 0.0, random.uniform(0.0, longest_dying))),
        )


@dataclass(frozen=True, slots=True)
class ProgramCallbacks:
    """Callbacks to the program's agent. `work` does one second of work and returns whether all work is done."""

    work: Callable[[], bool]
    printed: Callable[[], None]
    acknowledged: Callable[[], None]
    yielded: Callable[[], None]
    ended: Callable[[int], None]


class Program:
    """A program. `exists` is true from `begin` until its last process has ended."""

    def __init__(
        self, name: str, behavior: ProgramBehavior, random: Random, callbacks: ProgramCallbacks
    ) -> None:
        self.process = SimulatedProcess(f"program {name}")
        self.exists = False
        self._behavior = behavior
        self._random = random
        self._callbacks = callbacks
        self._dying = False
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self.exists = True
        self._running = self.process.create_task(self._run())

    def suspend(self) -> None:
        """Acknowledge the suspend request within a second, if the program does so at all."""
        if self.exists and self._behavior.saves:
            self._soon(self._acknowledge, 1.0)

    def terminate(self) -> None:
        """Send SIGTERM. A frozen program receives it when it thaws."""
        if self._behavior.obeys:
            self._soon(lambda: self.end(_SIGTERM), 1.0)

    def kill(self) -> None:
        """Send SIGKILL, which works even if the program is frozen."""
        if self.exists and not self._dying:
            self._dying = True
            loop = asyncio.get_running_loop()
            run_outside(loop.call_later, self._behavior.dying_seconds, self.end, _SIGKILL)

    def end(self, code: int) -> None:
        """End the program, and report its exit code."""
        if not self.exists:
            return
        self.exists = False
        assert self._running is not None
        self._running.cancel()
        self.process.release()
        self._callbacks.ended(code)

    async def _run(self) -> None:
        printed_at = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(_WORK_SECONDS)
            now = asyncio.get_running_loop().time()
            if self._behavior.print_seconds and now - printed_at >= self._behavior.print_seconds:
                printed_at = now
                self._callbacks.printed()
            if self._callbacks.work():
                return self.end(0)

    def _acknowledge(self) -> None:
        if self.exists:
            self._callbacks.acknowledged()
            if self._behavior.yields:
                self._soon(self._yield, 4.0)

    def _yield(self) -> None:
        if self.exists:
            self._callbacks.yielded()

    def _soon(self, action: Callable[[], object], seconds: float) -> None:
        wait = self._random.uniform(0.0, seconds)
        self.process.run(asyncio.get_running_loop().call_later, wait, action)
