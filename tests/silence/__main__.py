"""`python -m tests.silence FIRST COUNT [PARALLEL]`: run schedules, and print each violation and the totals."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.silence.schedules.runner import PARALLEL, run_schedules


def main(first: int, count: int, parallel: int = PARALLEL) -> int:
    with tempfile.TemporaryDirectory(prefix="hai-silence-") as directory:
        seeds = range(first, first + count)
        run_scenario = run_schedules(
            seeds,
            Path(directory),
            parallel=parallel,
            on_violation=lambda _, report: print(report, "\n"),
        )
        figures = asyncio.run(run_scenario)
    print(figures)
    return bool(figures.violations)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
