"""A program for tests with several servers. It prints numbered lines, and records when it began and ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

LINES, WITNESS = int(sys.argv[1]), Path(sys.argv[2])


def testify(word: str) -> None:
    """Append one line with one write."""
    with WITNESS.open("a") as file:
        file.write(f"{os.environ['HAI_TASK_ID']} {word} {time.time()}\n")


testify("begin")
for number in range(LINES):
    print(f"line {number}", flush=True)
    time.sleep(0.02)
testify("end")
