"""A program that detects another process of its rank: it holds a lock as long as it runs.

Run as `python program.py DIRECTORY [--steps N | --until FILE] [--pace SECONDS] [--silent] [--stubborn]`. Each step
prints one numbered line, unless the program is silent. With --until, the last step is the one after which the file
exists. A stubborn program ignores SIGTERM and suspend requests; others obey both at once. The lock is
`DIRECTORY/TASK-RANK.lock`. The kernel releases it only when the last process that inherited it has ended. The program
appends a line to `DIRECTORY/witness` when it begins, when it ends by itself, and when the lock was not free.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

import hai
from hai.task import env

BESIDE = 99
"""The exit code of a program that found another one of its rank alive."""


def main(argv: list[str]) -> int:
    arguments = _parse(argv)
    testify = _Witness(arguments.directory)
    if arguments.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not testify.alone():
        testify("beside", 0)
        return BESIDE
    testify("begin", 0)
    step = 0
    for step in range(arguments.steps):
        if not arguments.silent:
            print(line(step, testify.run), flush=True)
        if not arguments.stubborn and hai.receive_suspend_command():
            hai.go_suspend()
        time.sleep(arguments.pace)
        if arguments.until and arguments.until.exists():
            break
    testify("end", step + 1)
    return 0


def line(step: int, run: int = 1) -> str:
    """Return what a step prints."""
    return f"run {run} step {step}"


class _Witness:
    """Holds the lock of the rank, and appends records."""

    def __init__(self, directory: Path) -> None:
        self._task, self.run, self._rank = map(int, os.environ[env.RANK_KEY].split("-"))
        self._lock = (directory / f"{self._task}-{self._rank}.lock").open("a")
        os.set_inheritable(self._lock.fileno(), True)
        self._file = directory / "witness"

    def alone(self) -> bool:
        """Acquire the lock. Return false if another process holds it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __call__(self, word: str, steps: int) -> None:
        """Append one line with one write."""
        with self._file.open("a") as file:
            file.write(f"{self._task} {self.run} {self._rank} {word} {steps}\n")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--until", type=Path)
    parser.add_argument("--pace", type=float, default=0.05)
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--stubborn", action="store_true")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
