"""Run many schedules in parallel, and collect those that violate an invariant."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.silence.lease_server import lease_server
from tests.silence.schedules.scenario import Violation, run_scenario
from tests.silence.schedules.schedule import TIMING, schedule

PARALLEL = 8
"""Number of schedules at a time. They mostly wait, but agents that start delay the renewals of others."""


@dataclass
class Figures:
    """Results: `violations` by seed, and the number of schedules by their end."""

    violations: dict[int, str] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        bad = f"; wrong: {sorted(self.violations)}" if self.violations else ""
        return f"{self.ends.total()} schedules in {self.seconds:.0f} s: {ends}{bad}"


async def run_schedules(
    seeds: Iterable[int],
    directory: Path,
    *,
    parallel: int = PARALLEL,
    on_violation: Callable[[int, str], None] = lambda seed, report: None,
) -> Figures:
    """Run the schedule of each seed. `on_violation` gets the seed and the report of a schedule that fails."""
    figures, slots, start = Figures(), asyncio.Semaphore(parallel), time.monotonic()
    async with lease_server(directory, TIMING) as server:

        async def run_one(seed: int) -> None:
            async with slots:
                rank_directory = directory / str(seed)
                try:
                    notes = await run_scenario(schedule(seed), server, rank_directory)
                    figures.ends["given up" if "given up" in "".join(notes) else "recorded"] += 1
                except Violation as error:
                    figures.ends["wrong"] += 1
                    figures.violations[seed] = str(error)
                    on_violation(seed, str(error))
                await asyncio.to_thread(shutil.rmtree, rank_directory, ignore_errors=True)

        async with asyncio.TaskGroup() as group:
            for seed in seeds:
                group.create_task(run_one(seed))
    figures.seconds = time.monotonic() - start
    return figures
