"""Many schedules side by side, and which of them went wrong."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.silence.lease_server import lease_server
from tests.silence.schedule import TIMING, schedule
from tests.silence.story import Wrong, play

BESIDE = 8
"""Stories at a time: most of a story is waiting, but agents that start make others late for their leases."""


@dataclass
class Figures:
    """What became of the schedules."""

    wrong: dict[int, str] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        bad = f"; wrong: {sorted(self.wrong)}" if self.wrong else ""
        return f"{self.ends.total()} schedules in {self.seconds:.0f} s: {ends}{bad}"


async def play_all(
    seeds: Iterable[int],
    directory: Path,
    *,
    beside: int = BESIDE,
    told: Callable[[int, str], None] = lambda seed, story: None,
) -> Figures:
    """Each seed once; `told` hears of those that were wrong as soon as they are."""
    figures, turn, began = Figures(), asyncio.Semaphore(beside), time.monotonic()
    async with lease_server(directory, TIMING) as server:

        async def one(seed: int) -> None:
            async with turn:
                where = directory / str(seed)
                try:
                    log = await play(schedule(seed), server, where)
                    figures.ends["given up" if "given up" in "".join(log) else "recorded"] += 1
                except Wrong as error:
                    figures.ends["wrong"] += 1
                    figures.wrong[seed] = str(error)
                    told(seed, str(error))
                await asyncio.to_thread(shutil.rmtree, where, ignore_errors=True)

        async with asyncio.TaskGroup() as group:
            for seed in seeds:
                group.create_task(one(seed))
    figures.seconds = time.monotonic() - began
    return figures
