"""A program for the fault-point test. It counts steps, saves them in a checkpoint, and records when it ran."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import hai
from hai.task import checkpoint, env

STEPS, WITNESS = int(sys.argv[1]), Path(sys.argv[2])
BORN = time.time()
PACE = 0.02  # seconds per step
STAYS = 20  # the step at which the first run waits for a suspend request, so that it does not end before
FIRST = os.environ[env.RUN_NUMBER] == "1"


def testify(*_: object) -> None:
    """Append one line with one write."""
    span = {"rank": hai.rank(), "from": BORN, "to": time.time()}
    with WITNESS.open("a") as file:
        file.write(json.dumps(span) + "\n")


def leave(step: int) -> None:
    if hai.rank() == 0:
        checkpoint.save_bytes("count", str(step).encode(), step=step)
        testify()
        hai.go_suspend()
    testify()
    hai.wait_suspended()


def on_term(*_: object) -> None:
    sys.exit(143)


signal.signal(signal.SIGTERM, on_term)
found = checkpoint.latest("count")
for step in range(found.step if found else 0, STEPS):
    while step == STAYS and FIRST and not hai.receive_suspend_command():
        time.sleep(PACE)
    if hai.suspend_agreed(step):
        leave(step)
    if hai.rank() == 0:
        print(f"step {step}", flush=True)
    time.sleep(PACE)
testify()
