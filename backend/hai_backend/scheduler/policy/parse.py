"""Strict parsing of settings. All violations are reported at once; an unknown name or choice gets a suggestion.

A reader converts one JSON value. It raises ValueError for one violation and Invalid for several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from hai_backend.domain.errors import Invalid, Violation
from hai_backend.domain.priority import LEVELS, Priority

Reader = Callable[[Any], Any]
EnumChoice = TypeVar("EnumChoice", bound=StrEnum)
Choice = TypeVar("Choice")

_MAX_LENGTH = 40  # characters of a wrong value
_NAMES = {level.name: level for level in LEVELS}


def read_table(
    found: Any, readers: Mapping[str, Reader], required: Iterable[str] = ()
) -> dict[str, Any]:
    """Convert each value of a JSON object with the reader of its name. Raises ValueError or Invalid."""
    if not isinstance(found, Mapping):
        raise ValueError(f"must hold names and values, not {abbreviated(found)}")
    values: dict[str, Any] = {}
    faults = [Violation(name, "is missing") for name in required if name not in found]
    for key, written in found.items():
        try:
            values[str(key)] = _reader(str(key), readers)(written)
        except ValueError as error:
            faults.append(Violation(str(key), str(error)))
        except Invalid as error:
            faults += (Violation(f"{key}.{v.field}", v.message) for v in error.violations)
    if faults:
        raise Invalid(tuple(faults), reason="BAD_POLICY")
    return values


def _reader(name: str, readers: Mapping[str, Reader]) -> Reader:
    if name not in readers:
        raise ValueError(f"there is no such setting{suggestion(name, readers)}")
    return readers[name]


def number(least: float, most: float) -> Reader:
    """Return a reader of numbers within limits. It rejects NaN and booleans."""

    def read(written: Any) -> float:
        if not (_is_number(written) and least <= written <= most):
            raise ValueError(
                f"must be a number from {least:g} to {most:g}, not {abbreviated(written)}"
            )
        return float(written)

    return read


def integer(least: int, most: int) -> Reader:
    """Return a reader of integers within limits."""

    def read(written: Any) -> int:
        if not (_is_number(written) and least <= written <= most and written == int(written)):
            raise ValueError(
                f"must be an integer from {least} to {most}, not {abbreviated(written)}"
            )
        return int(written)

    return read


def flag(written: Any) -> bool:
    """Read true or false."""
    if not isinstance(written, bool):
        raise ValueError(f"must be true or false, not {abbreviated(written)}")
    return written


def choice_of(kind: type[EnumChoice]) -> Callable[[Any], EnumChoice]:
    """Return a reader of the values of an enumeration."""
    choices = {str(choice): choice for choice in kind}
    return lambda written: _one_of(choices, written)


def level(written: Any) -> Priority:
    """Read the name of a level other than AUTO."""
    return _one_of(_NAMES, written)


def suggestion(text: str, choices: Iterable[str]) -> str:
    """Return "; did you mean …?" if a choice is similar, else all choices."""
    folded = {name.casefold(): name for name in choices}
    found = get_close_matches(text[:64].casefold(), list(folded), n=1)
    return f"; did you mean {folded[found[0]]}?" if found else f"; there are {', '.join(choices)}"


def abbreviated(written: Any) -> str:
    """Return the representation of a value, in at most 40 characters."""
    text = repr(written)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


def _one_of(choices: Mapping[str, Choice], written: Any) -> Choice:
    if not isinstance(written, str) or written not in choices:
        raise ValueError(f"there is no {abbreviated(written)}{suggestion(str(written), choices)}")
    return choices[written]


def _is_number(written: Any) -> bool:
    return isinstance(written, int | float) and not isinstance(written, bool)
