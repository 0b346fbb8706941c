"""Reads the records of `program.py`: when programs ran, and whether a program of a rank still runs."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True, slots=True)
class Testimony:
    """One record. `word` is begin, end or beside; `steps` is the number of steps at the end."""

    task: int
    run: int
    rank: int
    word: str
    steps: int


def read(directory: Path) -> list[Testimony]:
    """Return all records in order of time."""
    try:
        lines = (directory / "witness").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [
        Testimony(int(task), int(run), int(rank), word, int(steps))
        for task, run, rank, word, steps in map(str.split, lines)
    ]


def words(directory: Path, task: int, rank: int = 0) -> list[tuple[int, str]]:
    """Return run number and word of each record of one rank."""
    return [(t.run, t.word) for t in read(directory) if (t.task, t.rank) == (task, rank)]


def steps(directory: Path, task: int, run: int = 1, rank: int = 0) -> int | None:
    """Return the number of steps of a program that ended by itself, else None."""
    ended = [
        t for t in read(directory) if (t.task, t.run, t.rank, t.word) == (task, run, rank, "end")
    ]
    return ended[0].steps if ended else None


def is_free(directory: Path, task: int, rank: int = 0) -> bool:
    """Return whether no process of the rank's program is left: its lock can be taken."""
    with (directory / f"{task}-{rank}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
