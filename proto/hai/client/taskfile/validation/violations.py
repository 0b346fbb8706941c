"""Collects the violations of one spec by the paths of their fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from hai.client.errors import Violation

_MAX_COMPARED_NAMES = (
    200  # comparing thousands of names takes seconds, in which a server does nothing else
)
_SEPARATOR = re.compile(r"[.\[]")


class Violations:
    """The violations of one spec, in the order in which they were added."""

    def __init__(self, found: Iterable[Violation] = ()) -> None:
        self._found = list(found)
        self._invalid_paths: set[str] = set()
        self._enclosing: set[str] = set()  # paths that contain an invalid value
        for each in self._found:
            self._record(each.field)

    def __iter__(self) -> Iterator[Violation]:
        return iter(self._found)

    def add(self, path: str, message: str) -> None:
        """Add a violation of the field at a path."""
        self._found.append(Violation(path, message))
        self._record(path)

    def ok(self, *paths: str) -> bool:
        """Return whether nothing is wrong at, inside or around these paths. Only then may fields be compared."""
        return not self._found or not any(
            path in self._enclosing or not self._invalid_paths.isdisjoint(_enclosing_paths(path))
            for path in paths
        )

    def _record(self, path: str) -> None:
        self._invalid_paths.add(path)
        self._enclosing.update(_enclosing_paths(path))


def _enclosing_paths(path: str) -> list[str]:
    """Return a path and all paths around it. For a.b[0].c these are a, a.b, a.b[0] and a.b[0].c."""
    ends = [found.start() for found in _SEPARATOR.finditer(path)]
    return [path[:end] for end in ends if end] + [path]


def suggestion_text(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?`, or an empty string if no name is similar or there are too many names."""
    names = [name for name in known if name]
    found = get_close_matches(word[:64], names, n=1) if len(names) <= _MAX_COMPARED_NAMES else []
    return f"; did you mean {found[0]}?" if found else ""


def quote_shortened(value: str) -> str:
    """Return a text in quotes, shortened if it is long."""
    return repr(value if len(value) <= 40 else value[:37] + "...")
