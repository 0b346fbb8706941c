"""What programs of `program.py` have witnessed, and whether a rank is free."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True, slots=True)
class Testimony:
    """One line of the witness. `word`: begin, end or beside; `steps` that were done, at the end."""

    task: int
    run: int
    rank: int
    word: str
    steps: int


def read(directory: Path) -> list[Testimony]:
    """In order of time."""
    try:
        lines = (directory / "witness").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [
        Testimony(int(task), int(run), int(rank), word, int(steps))
        for task, run, rank, word, steps in map(str.split, lines)
    ]


def words(directory: Path, task: int, rank: int = 0) -> list[tuple[int, str]]:
    """Run and word, of one rank."""
    return [(t.run, t.word) for t in read(directory) if (t.task, t.rank) == (task, rank)]


def steps(directory: Path, task: int, run: int = 1, rank: int = 0) -> int | None:
    """How many the program had done when it ended by itself; None: it did not."""
    ended = [
        t for t in read(directory) if (t.task, t.run, t.rank, t.word) == (task, run, rank, "end")
    ]
    return ended[0].steps if ended else None


def is_free(directory: Path, task: int, rank: int = 0) -> bool:
    """Whether no process of the rank's program is left: the lock can be had, and is given back at once."""
    with (directory / f"{task}-{rank}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
