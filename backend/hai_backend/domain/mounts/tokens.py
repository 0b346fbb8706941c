"""The words of a condition, each with its column."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hai_backend.domain.mounts.variables import Problem

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]+)|(?P<number>\d{1,18})|(?P<text>'[^'\\]*'|\"[^\"\\]*\")"
    r"|(?P<sign>==|!=|[().,\[\]]))"
)


@dataclass(frozen=True, slots=True)
class Token:
    """Kinds: word, number, text (with its quotes), sign, and end, which is always the last."""

    kind: str
    text: str
    column: int


def tokens(text: str) -> list[Token]:
    """Raises Problem at what is none."""
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _unreadable(text, at)
        kind = match.lastgroup
        found.append(Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    return [*found, Token("end", "the end", len(text) + 1)]


def _unreadable(text: str, at: int) -> Problem:
    at += len(text[at:]) - len(text[at:].lstrip())
    if text[at] in "'\"":
        return Problem(at + 1, "this text has no closing quote, or a backslash in it")
    return Problem(at + 1, f"{text[at]!r} cannot be read here")
