"""What people write as settings, read strictly: every fault is told at once, and of a wrong word the one it is near to.

A reader makes a value of what was written, or raises ValueError with what is wrong; Invalid, when several things are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.priority import LEVELS, Priority

Reader = Callable[[Any], Any]
Word = TypeVar("Word", bound=StrEnum)
Choice = TypeVar("Choice")

_SHOWN = 40  # characters of a wrong value
_NAMES = {level.name: level for level in LEVELS}


def table(found: Any, readers: Mapping[str, Reader], needed: Iterable[str] = ()) -> dict[str, Any]:
    """The values under those names that were written. Raises ValueError or Invalid."""
    if not isinstance(found, Mapping):
        raise ValueError(f"must hold names and values, not {shown(found)}")
    values: dict[str, Any] = {}
    faults = [Violation(name, "is missing") for name in needed if name not in found]
    for key, written in found.items():
        try:
            values[str(key)] = _known(str(key), readers)(written)
        except ValueError as error:
            faults.append(Violation(str(key), str(error)))
        except Invalid as error:
            faults += (Violation(f"{key}.{v.field}", v.message) for v in error.violations)
    if faults:
        raise Invalid(tuple(faults), reason="BAD_POLICY")
    return values


def _known(name: str, readers: Mapping[str, Reader]) -> Reader:
    if name not in readers:
        raise ValueError(f"there is no such setting{near(name, readers)}")
    return readers[name]


def number(least: float, most: float) -> Reader:
    """Reads a number within limits; neither a NaN nor a truth value is one."""

    def read(written: Any) -> float:
        if not (_is_number(written) and least <= written <= most):
            raise ValueError(f"must be a number from {least:g} to {most:g}, not {shown(written)}")
        return float(written)

    return read


def whole(least: int, most: int) -> Reader:
    """Reads a whole number within limits."""

    def read(written: Any) -> int:
        if not (_is_number(written) and least <= written <= most and written == int(written)):
            raise ValueError(f"must be a whole number from {least} to {most}, not {shown(written)}")
        return int(written)

    return read


def flag(written: Any) -> bool:
    """True or false."""
    if not isinstance(written, bool):
        raise ValueError(f"must be true or false, not {shown(written)}")
    return written


def word_of(kind: type[Word]) -> Callable[[Any], Word]:
    """Reads a word of a closed set."""
    words = {str(word): word for word in kind}
    return lambda written: _one_of(words, written)


def level(written: Any) -> Priority:
    """A level by its name; AUTO is none."""
    return _one_of(_NAMES, written)


def near(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?` when a known word is near, else which ones there are."""
    folded = {name.casefold(): name for name in known}
    found = get_close_matches(word[:64].casefold(), list(folded), n=1)
    return f"; did you mean {folded[found[0]]}?" if found else f"; there are {', '.join(known)}"


def shown(written: Any) -> str:
    """What was written, shortened."""
    text = repr(written)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _one_of(known: Mapping[str, Choice], written: Any) -> Choice:
    if not isinstance(written, str) or written not in known:
        raise ValueError(f"there is no {shown(written)}{near(str(written), known)}")
    return known[written]


def _is_number(written: Any) -> bool:
    return isinstance(written, int | float) and not isinstance(written, bool)
