"""Texts with `{user.name}` and the like in them. A value fills in a part of one name, and can never become a path.

Task names are free text of users, so a value that is not a plain word is refused, not repaired: what would be repaired
alike for two tasks would give one the directory of the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from hai_backend.domain.mounts.variables import Facts, Kind, Problem, kind_of

_PLAIN = re.compile(r"\w[\w.+@-]*")
_CHARS = 255


@dataclass(frozen=True, slots=True)
class Hole:
    """A place for the value of an attribute."""

    attribute: str


@dataclass(frozen=True, slots=True)
class Template:
    """Literal texts and holes, in turn."""

    parts: tuple[str | Hole, ...]

    @property
    def mentions(self) -> frozenset[str]:
        """The attributes that it asks for."""
        return frozenset(part.attribute for part in self.parts if isinstance(part, Hole))

    def fill(self, facts: Facts) -> str:
        """The text. Raises ValueError for a value that may not stand in one."""
        return "".join(p if isinstance(p, str) else _word(p, facts) for p in self.parts)


@lru_cache(maxsize=4096)
def parse_template(text: str) -> Template:
    """Raises Problem."""
    parts: list[str | Hole] = []
    at = 0
    while at < len(text):
        end = _end(text, at)
        parts.append(_hole(text, at, end) if text[at] == "{" else text[at:end])
        at = end
    return Template(tuple(parts))


def _end(text: str, at: int) -> int:
    """Where the part that begins at `at` ends."""
    if text[at] == "}":
        raise Problem(at + 1, "this } closes nothing")
    if text[at] == "{":
        end = text.find("}", at)
        if end < 0:
            raise Problem(at + 1, "this { is not closed")
        return end + 1
    found = [i for i in (text.find("{", at), text.find("}", at)) if i >= 0]
    return min(found, default=len(text))


def _hole(text: str, at: int, end: int) -> Hole:
    name = text[at + 1 : end - 1]
    if kind_of(name, at + 2) is Kind.TEXTS:
        raise Problem(at + 2, f"{name} is a list, and cannot stand in a text")
    return Hole(name)


def _word(hole: Hole, facts: Facts) -> str:
    value = str(facts[hole.attribute])
    if not _PLAIN.fullmatch(value) or len(value) > _CHARS:
        wanted = "a word of letters, digits, `_`, `.`, `+`, `@` and `-` that begins with a letter, digit or `_`"
        shown = repr(value if len(value) <= 40 else value[:37] + "...")
        raise ValueError(f"{hole.attribute} is {shown}; only {wanted} may become part of a path")
    return value
