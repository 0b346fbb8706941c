"""Collects the violations of one spec, by the path of each field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from hai.client.errors import Violation

_COMPARED = 200  # names; to compare thousands takes seconds, in which a server does nothing else
_JOINT = re.compile(r"[.\[]")


class Violations:
    """`add` for what is wrong; `ok` says whether a field may be compared with others."""

    def __init__(self, found: Iterable[Violation] = ()) -> None:
        self._found = list(found)
        self._wrong: set[str] = set()
        self._around: set[str] = set()  # what holds something that is wrong
        for each in self._found:
            self._note(each.field)

    def __iter__(self) -> Iterator[Violation]:
        return iter(self._found)

    def add(self, path: str, message: str) -> None:
        """One broken rule."""
        self._found.append(Violation(path, message))
        self._note(path)

    def ok(self, *paths: str) -> bool:
        """True where nothing is wrong at these paths, within them or around them."""
        return not self._found or not any(
            path in self._around or not self._wrong.isdisjoint(_prefixes(path)) for path in paths
        )

    def _note(self, path: str) -> None:
        self._wrong.add(path)
        self._around.update(_prefixes(path))


def _prefixes(path: str) -> list[str]:
    """a.b[0].c: a, a.b, a.b[0] and all of it."""
    ends = [found.start() for found in _JOINT.finditer(path)]
    return [path[:end] for end in ends if end] + [path]


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing; of very many names none."""
    names = [name for name in known if name]
    found = get_close_matches(word[:64], names, n=1) if len(names) <= _COMPARED else []
    return f"; did you mean {found[0]}?" if found else ""


def quote_shortened(value: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(value if len(value) <= 40 else value[:37] + "...")
