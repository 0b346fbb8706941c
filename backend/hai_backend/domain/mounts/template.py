"""Templates such as `/data/{user.name}`. A value becomes a part of one path component.

Task names are free text. A value with characters that are not allowed is rejected and not sanitized: two names that
were sanitized to the same text would share a directory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from hai_backend.domain.mounts.variables import Facts, Kind, Problem, kind_of

_PLAIN = re.compile(r"\w[\w.+@-]*")
_CHARS = 255


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Stands for the value of an attribute."""

    attribute: str


@dataclass(frozen=True, slots=True)
class Template:
    """Literal texts and placeholders."""

    parts: tuple[str | Placeholder, ...]

    @property
    def mentions(self) -> frozenset[str]:
        """The attributes of its placeholders."""
        return frozenset(part.attribute for part in self.parts if isinstance(part, Placeholder))

    def fill(self, facts: Facts) -> str:
        """Return the text with all values. Raises ValueError if a value is not allowed in a path."""
        return "".join(p if isinstance(p, str) else _value_text(p, facts) for p in self.parts)


@lru_cache(maxsize=4096)
def parse_template(text: str) -> Template:
    """Parse a template. Raises Problem."""
    parts: list[str | Placeholder] = []
    at = 0
    while at < len(text):
        end = _end(text, at)
        parts.append(_placeholder(text, at, end) if text[at] == "{" else text[at:end])
        at = end
    return Template(tuple(parts))


def _end(text: str, at: int) -> int:
    """Return where the part that begins at `at` ends."""
    if text[at] == "}":
        raise Problem(at + 1, "this } closes nothing")
    if text[at] == "{":
        end = text.find("}", at)
        if end < 0:
            raise Problem(at + 1, "this { is not closed")
        return end + 1
    found = [i for i in (text.find("{", at), text.find("}", at)) if i >= 0]
    return min(found, default=len(text))


def _placeholder(text: str, at: int, end: int) -> Placeholder:
    name = text[at + 1 : end - 1]
    if kind_of(name, at + 2) is Kind.TEXTS:
        raise Problem(at + 2, f"{name} is a list, and cannot stand in a text")
    return Placeholder(name)


def _value_text(placeholder: Placeholder, facts: Facts) -> str:
    value = str(facts[placeholder.attribute])
    if not _PLAIN.fullmatch(value) or len(value) > _CHARS:
        rule = "a word of letters, digits, `_`, `.`, `+`, `@` and `-` that begins with a letter, digit or `_`"
        display = repr(value if len(value) <= 40 else value[:37] + "...")
        raise ValueError(
            f"{placeholder.attribute} is {display}; only {rule} may become part of a path"
        )
    return value
