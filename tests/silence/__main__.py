"""`python -m tests.silence FIRST COUNT [BESIDE]`: plays these schedules, tells each that is wrong, and the figures."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.silence.playing import BESIDE, play_all


def main(first: int, count: int, beside: int = BESIDE) -> int:
    with tempfile.TemporaryDirectory(prefix="hai-silence-") as directory:
        seeds = range(first, first + count)
        play = play_all(
            seeds, Path(directory), beside=beside, told=lambda _, story: print(story, "\n")
        )
        figures = asyncio.run(play)
    print(figures)
    return bool(figures.wrong)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
