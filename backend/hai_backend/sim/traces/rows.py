"""The common parts of all trace formats: one row per job, and a list of all problems of a file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.priority import Priority

T = TypeVar("T")

MAX_PROBLEMS = 20
"""Problems told of one file; the rest is a number."""

UNKNOWN_USER = "unknown"
"""Whose the jobs are that name no user."""


@dataclass(frozen=True, slots=True)
class Row:
    """One job of a file. `submit` has the zero of the file."""

    line: int
    name: str
    user: str
    submit: float
    duration: float
    gpus: int
    nodes: int | None = None  # None if the file does not say it
    priority: Priority = Priority.NORMAL


@dataclass(slots=True)
class ReadLog:
    """Collects problems and skipped lines while a file is read."""

    source: str
    seed: int = 1  # of values that are drawn because the file does not have them
    problems: list[Violation] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def wrong(self, line: int, column: str, message: str) -> None:
        """Add a problem with its position."""
        position = f"{self.source}:{line}" + (f", column {column}" if column else "")
        self.problems.append(Violation(position, message))

    def value(
        self, line: int, column: str, text: str, convert: Callable[[str], T], otherwise: T
    ) -> T:
        """Convert a text. If that fails, add a problem and return `otherwise`."""
        try:
            return convert(text)
        except ValueError as error:
            self.wrong(line, column, str(error))
            return otherwise

    def check(self) -> None:
        """Raise Invalid with the first problems and the number of further ones, if there are any."""
        if not self.problems:
            return
        remaining = len(self.problems) - MAX_PROBLEMS
        more = (Violation(self.source, f"and {remaining} more problems"),) if remaining > 0 else ()
        raise Invalid((*self.problems[:MAX_PROBLEMS], *more), reason="BAD_TRACE")


def bad_trace(source: str, message: str) -> Invalid:
    """Return the error for a file that is wrong as a whole."""
    return Invalid((Violation(source, message),), reason="BAD_TRACE")


def require_columns(source: str, line: int, present: Sequence[str], needed: Sequence[str]) -> None:
    """Raise Invalid if the header lacks a required column."""
    if lacking := [name for name in needed if name not in present]:
        raise bad_trace(
            f"{source}:{line}",
            f"the header lacks {', '.join(lacking)}; it has {', '.join(present)}",
        )


def parse_seconds(text: str) -> float:
    """Parse a finite number of seconds. Raises ValueError with a sentence."""
    if not math.isfinite(value := to_float(text)):
        raise ValueError(f"{text!r} is not a number of seconds; write one such as 3600 or 0.5")
    return value


def to_float(text: str) -> float:
    """Return the number in a text, or NaN if there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_duration(text: str) -> float:
    """Parse a number of seconds that is not negative. Raises ValueError."""
    value = parse_seconds(text)
    if value < 0:
        raise ValueError(f"{text!r} is negative; a job runs 0 seconds or more")
    return value


def parse_count(text: str) -> int:
    """Parse an integer from 0; spreadsheets write 8 as 8.0. Raises ValueError."""
    value = to_float(text)
    if not (math.isfinite(value) and value >= 0 and value.is_integer()):
        raise ValueError(f"{text!r} is not a whole number; write 0, 1, 2, …")
    return int(value)


_LEVELS: Mapping[str, Priority] = {p.name: p for p in Priority if p is not Priority.AUTO}


def level(text: str) -> Priority:
    """Parse the name of a level, or a number, which gives the nearest level (of two, the lower).

    Raises ValueError.
    """
    level_name = text.strip().upper()
    if level_name in _LEVELS:
        return _LEVELS[level_name]
    value = to_float(level_name)
    if not Priority.LOW <= value <= Priority.EXTREME_HIGH:
        levels = ", ".join(f"{int(p)} {name}" for name, p in _LEVELS.items())
        raise ValueError(f"{text!r} is not a priority; levels are {levels}")
    return min(_LEVELS.values(), key=lambda p: (abs(p - value), p))
