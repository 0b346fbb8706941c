"""What each option of the command takes: a value, or a sentence about what is wrong with the text."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping
from pathlib import Path

from hai_backend.sim.rows import as_float
from hai_backend.sim.traces import FORMATS

SYNTHETIC: Mapping[str, int] = {
    "nodes": 10_000,
    "waiting": 100_000,
    "running": 5_000,
    "users": 500,
    "groups": 20,
}
"""What --synthetic takes, and what holds for a name left out."""

_MAY_BE_0 = ("waiting", "running")


def unreadable(path: Path) -> str:
    """Why a file cannot be read; empty when it can."""
    if path.is_dir():
        return "is a directory; name a file"
    if not path.exists():
        return "no such file"
    return "" if os.access(path, os.R_OK) else "you may not read it"


def unwritable(path: Path) -> str:
    """Why a file cannot be written; better said before a replay of minutes than after it."""
    if path.is_dir():
        return "is a directory; name a file"
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}; make it first"
    writable = os.access(path if path.exists() else path.parent, os.W_OK)
    return "" if writable else "you may not write there"


def positive(text: str) -> int:
    """A whole number from 1. Raises ValueError."""
    return _number(text, at_least=1)


def number(text: str) -> int:
    """A whole number from 0. Raises ValueError."""
    return _number(text, at_least=0)


def _number(text: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise ValueError(f"{text!r} is not a whole number from {at_least}")
    return value


def factor(text: str) -> float:
    """A number above 0. Raises ValueError."""
    value = as_float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(
            f"{text!r} is not a number above 0; 5 lets the jobs come five times as fast"
        )
    return value


def format_name(text: str) -> str:
    """A format of traces. Raises ValueError."""
    if text not in FORMATS:
        raise ValueError(f"no format {text!r}; there are {', '.join(FORMATS)}")
    return text


def passes(text: str) -> Mapping[str, int] | Path:
    """The numbers of --synthetic, or the file of a snapshot. Raises ValueError with all that is wrong."""
    if not text.endswith(".json"):
        return synthetic(text)
    if problem := unreadable(Path(text)):
        raise ValueError(f"{text}: {problem}")
    return Path(text)


def synthetic(text: str) -> Mapping[str, int]:
    """The numbers of --synthetic, the ones left out as well. Raises ValueError with all that is wrong."""
    found, wrong = dict(SYNTHETIC), []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            found[_known(name)] = _number(value, at_least=0 if name in _MAY_BE_0 else 1)
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return found


def _known(name: str) -> str:
    if name not in SYNTHETIC:
        near = difflib.get_close_matches(name, SYNTHETIC, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"no such number; {meant}there are {', '.join(SYNTHETIC)}")
    return name
