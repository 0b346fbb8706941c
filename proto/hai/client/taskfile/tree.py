"""A document as a tree in which every value has its position, from yaml text or a Python mapping.

Scalars keep the text that they were written with, so that `1.10` or `yes` can become a string unchanged. Limits on
size, depth and number of values stop documents that grow without bound by aliases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "integer", "number", "boolean", "null"]

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 16
MAX_VALUES = 20_000


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in a text. Line and column count from 1; 0 means that the value does not come from a text."""

    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value. `text` is how it was written."""

    kind: Kind
    text: str
    value: str | int | float | bool | None
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    values: tuple[Tree, ...]
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping, with its value."""

    key: str
    value: Tree
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping. Keys may be repeated; the reader of the tree reports that."""

    entries: tuple[Entry, ...]
    mark: Mark = Mark()


Tree = Scalar | Items | Table


class Malformed(Exception):
    """The document cannot become a tree: it has a syntax error or a forbidden construct, or exceeds a limit."""

    def __init__(self, message: str, mark: Mark = Mark()) -> None:
        super().__init__(message)
        self.message = message
        self.mark = mark


class Budget:
    """Limits the number and depth of values while a tree is built."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def spend(self, depth: int, mark: Mark) -> None:
        """Count one value. Raises Malformed when a limit is exceeded."""
        self._left -= 1
        if self._left < 0:
            raise Malformed(f"the document holds more than {MAX_VALUES} values", mark)
        if depth > MAX_DEPTH:
            raise Malformed(f"the document is nested deeper than {MAX_DEPTH} levels", mark)


def from_python(value: object, depth: int = 0, budget: Budget | None = None) -> Tree:
    """Return the tree of a mapping, list or scalar, as json.load or a program makes them."""
    budget = budget or Budget()
    budget.spend(depth, Mark())
    if isinstance(value, Mapping):
        return Table(
            tuple(Entry(str(k), from_python(v, depth + 1, budget)) for k, v in value.items())
        )
    if isinstance(value, list | tuple):
        return Items(tuple(from_python(v, depth + 1, budget) for v in value))
    return _python_scalar(value)


def _python_scalar(value: object) -> Scalar:
    match value:
        case None:
            return Scalar("null", "", None)
        case bool():
            return Scalar("boolean", str(value).lower(), value)
        case int():
            return Scalar("integer", str(value), value)
        case float():
            return Scalar("number", repr(value), value)
        case str():
            return Scalar("text", value, value)
        case _:
            raise Malformed(f"a {type(value).__name__} cannot stand in a task spec")
