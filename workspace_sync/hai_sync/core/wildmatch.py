"""Translates one line of a .gitignore to a regular expression with the meaning that git's wildmatch gives it.

git matches bytes: `?` is one byte, and a class contains bytes. Text is therefore read as Latin-1, one character per
byte (`as_bytes`). A pattern that git cannot use (an unclosed class, a backslash at its end) matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_SPECIAL = "*?[\\"
_ASCII = [chr(code) for code in range(1, 128)]
_DIGIT = frozenset("0123456789")
_UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = frozenset(letter.lower() for letter in _UPPER)
_SPACE = frozenset("\t\n\r ")  # git does not count a vertical tab or a form feed
_GRAPH = frozenset(char for char in _ASCII if "!" <= char <= "~")
_CLASSES = {
    "alnum": _DIGIT | _UPPER | _LOWER,
    "alpha": _UPPER | _LOWER,
    "blank": frozenset(" \t"),
    "cntrl": frozenset(char for char in _ASCII if char < " " or char == "\x7f"),
    "digit": _DIGIT,
    "graph": _GRAPH,
    "lower": _LOWER,
    "print": _GRAPH | {" "},
    "punct": _GRAPH - _DIGIT - _UPPER - _LOWER,
    "space": _SPACE,
    "upper": _UPPER,
    "xdigit": _DIGIT | frozenset("abcdefABCDEF"),
}
NOTHING = "(?!)"
"""A regular expression that matches no text."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The meaning of one line. `regex` must match a whole path, or a whole name."""

    regex: str
    negated: bool
    directories_only: bool
    name_only: bool  # the pattern has no slash, and is compared with the last part of a path


def parse(line: str) -> Pattern | None:
    """Return the pattern of a line without its line end, or None for an empty line or a comment."""
    text = line.partition("\0")[0]
    if not text or text.startswith("#"):
        return None
    text = as_bytes(_without_trailing_blanks(text))
    negated = text.startswith("!")
    text = text[negated:]
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    return Pattern(_translate(text), negated, directories_only, "/" not in text)


def as_bytes(text: str) -> str:
    """Return the text with one character for each byte of its UTF-8 form."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode("latin-1")


def _without_trailing_blanks(text: str) -> str:
    """Remove trailing blanks. A blank after a backslash is kept."""
    end = position = 0
    while position < len(text):
        escaped = text[position] == "\\"
        if text[position] != " ":
            end = position + 1 + escaped
        position += 1 + escaped
    return text[:end]


def _translate(text: str) -> str:
    """Return the regular expression of a pattern, or NOTHING for one that git cannot use."""
    builder = _Builder()
    # git compares the text before the first special character separately, so two stars after it begin a part
    first_special = next((at for at, char in enumerate(text) if char in _SPECIAL), len(text))
    position = 1 if text.startswith("/") else 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "*":
            begin = position - 1
            while text[position : position + 1] == "*":
                position += 1
            if _crosses_slashes(text, begin, position, first_special):
                optional = text[position : position + 1] == "/"
                builder.add_stars(optional)
                position += optional
            else:
                builder.add_star()
        elif char == "?":
            builder.add("[^/]")
        elif char == "[":
            members, position = _class_at(text, position)
            if members is None:
                return NOTHING
            builder.add(members)
        elif char == "\\":
            if position == len(text):
                return NOTHING
            builder.add_literal(text[position])
            position += 1
        else:
            builder.add_literal(char)
    return builder.regex()


def _crosses_slashes(text: str, begin: int, end: int, first_special: int) -> bool:
    """Return whether stars match any number of directories: two or more stars that are a whole part of the path."""
    begins_part = begin == first_special or text[begin - 1] == "/"
    ends_part = end == len(text) or text[end] == "/" or text.startswith("\\/", end)
    return "/" in text and end - begin > 1 and begins_part and ends_part


@dataclass(slots=True)
class _Builder:
    """Builds a regular expression that tries only one position for a star that another star follows.

    The later star matches whatever the earlier one leaves, so its first position is as good as any other.
    """

    _parts: list[str] = field(default_factory=list)
    _star: int = -1  # index of the last star in this part of the path
    _stars: int = -1  # index of the last stars that cross slashes

    def add(self, regex: str) -> None:
        self._parts.append(regex)

    def add_literal(self, char: str) -> None:
        if char == "/":
            self._star = -1
        self._parts.append(re.escape(char))

    def add_star(self) -> None:
        self._close(self._star, "[^/]*?")
        self._star = len(self._parts)
        self._parts.append("[^/]*")

    def add_stars(self, optional: bool) -> None:
        """Add stars that cross slashes. `optional` stars with the slash after them also match no directory."""
        if self._stars >= 0:
            lazy = "(?:.*?/)??" if self._parts[self._stars] == "(?:.*/)?" else ".*?"
            self._close(self._stars, lazy)
        self._star, self._stars = -1, len(self._parts)
        self._parts.append("(?:.*/)?" if optional else ".*")

    def _close(self, begin: int, lazy: str) -> None:
        if begin >= 0:
            self._parts[begin:] = ["(?>" + lazy + "".join(self._parts[begin + 1 :]) + ")"]

    def regex(self) -> str:
        return "".join(self._parts)


def _class_at(text: str, position: int) -> tuple[str | None, int]:
    """Return the expression of a class that begins before this position, and its end; None for an unusable class."""
    negated = text[position : position + 1] in ("!", "^")
    position += negated
    members: set[str] = set()
    previous, first = "", True
    while first or text[position : position + 1] != "]":
        first = False
        char, position = text[position : position + 1], position + 1
        named, end = _named_class_at(text, position) if char == "[" else (None, position)
        following = text[position : position + 1]
        if char == "\\":
            char, position = following, position + 1
            members.add(char)
        elif char == "-" and previous and following not in ("", "]"):
            escaped = following == "\\"
            last = text[position + escaped : position + escaped + 1]
            position += 1 + escaped
            members |= _range(previous, last)
            char = "" if last else char
        elif named is not None:
            if named not in _CLASSES:
                return None, end
            members |= _CLASSES[named]
            char, position = "", end
        else:
            members.add(char)
        if position >= len(text):
            return None, position
        previous = char
    members -= {"/", ""}
    return _set(members, negated), position + 1


def _named_class_at(text: str, position: int) -> tuple[str | None, int]:
    """Return the name in `[:name:]` after its first bracket, and where it ends; None if it is a plain bracket."""
    if text[position : position + 1] != ":":
        return None, position
    end = text.find("]", position + 1)
    if end < 0:
        return "", len(text)  # git reads to the end of the pattern and finds the class unclosed
    if end < position + 2 or text[end - 1] != ":":
        return None, position
    return text[position + 1 : end - 1], end + 1


def _range(first: str, last: str) -> set[str]:
    return {chr(code) for code in range(ord(first), ord(last) + 1)} if last else set()


def _set(members: Iterable[str], negated: bool) -> str:
    inside = "".join(f"\\x{ord(char):02x}" for char in sorted(members))
    if negated:
        return f"[^/{inside}]"
    return f"[{inside}]" if inside else NOTHING
